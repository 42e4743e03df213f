// The chat template of the folder. Its end token is added to the end tokens of the model.
#include "export_template.h"

#include <algorithm>
#include <utility>

#include "fp8/chat/carried.h"
#include "fp8/chat/stored.h"

namespace fp8::convert {
namespace {

// The token that ends an answer: the template's, or the tokenizer's where the template has that; empty without one.
std::string end_of(const chat::Template& form, const std::map<std::string, std::string>& texts,
                   const std::string& beside) {
  if (!form.eos.empty()) return form.eos;
  if (std::ranges::find(form.answer, chat::Piece::Kind::eos, &chat::Piece::kind) == form.answer.end()) return "";
  return chat::special_tokens_of(texts, beside).eos.value_or("");
}

// The first part of with_template(), without what is for adapters.
void take_template(ExportOptions& options, const OpenModel& model, std::map<std::string, std::string>& texts,
                   const std::string& beside, ExportReport& report) {
  const std::optional<chat::Carried> own = own_template(model.source);
  const chat::Choice choice = chat::choose_template(options.form, own, options.any_template);
  if (!choice.note.empty()) report.notes.push_back(choice.note);
  if (!choice.form) return;
  const chat::Template& form = *choice.form;
  if (options.form && !chat::stands_for(form, own)) chat::put_template(texts, form, beside);
  if (options.form && !form.eos.empty()) chat::put_end_token(texts, form.eos, beside);
  options.inputs.push_back(form.path);
  const std::string end = end_of(form, texts, beside);
  if (end.empty()) return;
  if (options.form || model.source.tokenizer()) return options.end_tokens.push_back(end);
  report.notes.push_back("the id of " + end + ", which ends an answer of template " + form.name +
                         ", is not known without tokenizer.json, so generated texts do not end there");
}

}  // namespace

ExportOptions with_template(ExportOptions options, const OpenModel& model, std::map<std::string, std::string>& texts,
                            ExportReport& report) {
  const std::string beside = model.source.path() + ": /huggingface/";
  take_template(options, model, texts, beside, report);
  // PEFT generates with the generation_config.json of the base model, and trainers that go on with an adapter end texts
  // as the tokenizer does.
  if (options.format == ExportFormat::peft && !options.end_tokens.empty())
    chat::put_end_token(texts, options.end_tokens.front(), beside);
  return options;
}

}  // namespace fp8::convert
