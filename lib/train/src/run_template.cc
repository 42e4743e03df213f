// Compares the chat templates of data and model.
#include "run_template.h"

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/chat/carried.h"
#include "fp8/chat/stored.h"
#include "fp8/cli/command.h"
#include "fp8/convert/open.h"

namespace fp8::train {
namespace {

// A template, and how messages name it.
struct Known {
  chat::Template form;
  std::string name;
};

// The template of a token file. With `any`, nothing for one that this version cannot read.
std::optional<Known> template_of(const data::TokenFile& tokens, bool any) {
  const std::optional<chat::StoredTemplate>& stored = tokens.info().chat_template;
  if (!stored) return std::nullopt;
  try {
    chat::Template form = chat::from_stored(*stored, tokens.path() + ": template");
    std::string name = form.path == form.name ? "of a file, " + stored->digest : form.name;
    return Known{std::move(form), std::move(name)};
  } catch (const Error& e) {
    if (any) return std::nullopt;
    throw Error(std::string(e.what()) + "; make the file again, or give " + cli::flag_name("any-template") +
                " to go on without its template");
  }
}

// The token file of a difference, the other template, and where that is.
std::string difference(const data::TokenFile& tokens, const Known& mine, const std::string& other) {
  return tokens.path() + ": made with the template " + mine.name + ", " + other;
}

std::string named(const chat::Carried& own) {
  return "but that of the model is " + own.equivalent->form.name + " (" + own.where + ")";
}

// Whether the model has a known template that is another.
bool differs(const Known& mine, const std::optional<chat::Carried>& own) {
  return own && own->equivalent && !chat::same_form(mine.form, own->equivalent->form);
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(what + "; make one again with the other's template, or give " + cli::flag_name("any-template"));
}

}  // namespace

RunTemplate resolve_template(const data::TokenFile& tokens, const data::TokenFile* eval_tokens,
                             const ckpt::Checkpoint& start, const std::string& adapter,
                             const std::optional<std::string>& tokenizer, bool resuming, bool any) {
  convert::TokenizerFiles files = convert::tokenizer_files(start, resuming ? "" : adapter);
  RunTemplate out{.id = {}, .end = {}, .texts = std::move(files.texts), .note = {}};
  const std::optional<Known> data = template_of(tokens, any);
  const std::optional<Known> eval = eval_tokens != nullptr ? template_of(*eval_tokens, any) : std::nullopt;
  if (!data && !eval) return out;
  const std::optional<chat::Carried>& own = files.own_template;
  if (!any) {
    if (data && !resuming && differs(*data, own)) refuse(difference(tokens, *data, named(*own)));
    if (eval && !(resuming && data) && differs(*eval, own)) refuse(difference(*eval_tokens, *eval, named(*own)));
    if (data && eval && !chat::same_form(data->form, eval->form))
      refuse(difference(*eval_tokens, *eval, "but " + tokens.path() + " with " + data->name));
  }
  if (!data) return out;
  const bool named = data->form.path != data->form.name;
  out.id = named ? data->form.name : tokens.info().chat_template->digest;
  if (tokenizer && tokens.info().tokenizer && *tokenizer != *tokens.info().tokenizer) {
    out.note = tokens.path() + ": made with another tokenizer, so checkpoints do not keep its template, " + data->name;
    return out;
  }
  out.end = data->form.eos;
  const std::string beside = start.path() + ": /huggingface/";
  if (!chat::stands_for(data->form, own)) {
    const bool replaced = own && !own->digest.empty();
    chat::put_template(out.texts, data->form, beside);
    out.note = "checkpoints keep the template of " + tokens.path() + ", " + data->name +
               (replaced ? ", in place of that in " + own->where : "");
  } else if (!out.end.empty()) {
    chat::put_end_token(out.texts, out.end, beside);
  }
  return out;
}

std::string note_of_template(const data::TokenFile& tokens, const ckpt::Checkpoint& checkpoint) {
  const std::optional<Known> data = template_of(tokens, true);
  if (!data) return "";
  const std::optional<chat::Carried> own = convert::own_template(checkpoint);
  return differs(*data, own) ? difference(tokens, *data, named(*own)) : "";
}

}  // namespace fp8::train
