// The end token of the chat template joins those of the model.
#include "export_template.h"

#include <utility>

#include "fp8/chat/carried.h"

namespace fp8::convert {

ExportOptions with_template(ExportOptions options, const OpenModel& model, ExportReport& report) {
  if (!options.form && !model.source.tokenizer()) return options;  // the id of the end token is not known
  const chat::Choice choice = chat::choose_template(options.form, own_template(model.source), options.any_template);
  if (!choice.note.empty()) report.notes.push_back(choice.note);
  if (!choice.form) return options;
  options.inputs.push_back(choice.form->path);
  if (!choice.form->eos.empty()) options.end_tokens.push_back(choice.form->eos);
  return options;
}

}  // namespace fp8::convert
