// Reads prompts. Records are untrusted.
#include "fp8/generate/prompt.h"

#include <limits>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/chat/conversation.h"

namespace fp8::generate {
namespace {

std::uint32_t id_of(std::optional<std::int64_t> value, const std::string& shown) {
  if (!value || *value < 0 || *value > std::numeric_limits<std::int32_t>::max())
    throw Error(terminal_safe(excerpt(shown)) + " is not a token id");
  return static_cast<std::uint32_t>(*value);
}

// Throws if a record has several prompts.
void check_one_prompt(const json::Object& record) {
  std::string first;
  for (const char* key : {"messages", "conversations", "text", "ids"}) {
    if (record.find(key) == nullptr) continue;
    if (!first.empty())
      throw Error("the record has both \"" + first + "\" and \"" + key + "\", of which one is a prompt");
    first = key;
  }
}

// Reads like chat::read_question(), without hints for the columns of data, which are fixed in prompts.
chat::Conversation question_of(const json::Value& record, const chat::Schema& schema) {
  try {
    return chat::read_question(record, schema);
  } catch (const Error& e) {
    throw Error(e.what(), e.code());
  }
}

}  // namespace

Ids parse_ids(std::string_view text) {
  Ids ids;
  for (;;) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string one(text.substr(0, comma));
    ids.push_back(id_of(parse_int64(one), "'" + one + "'"));
    if (comma == text.size()) return ids;
    text.remove_prefix(comma + 1);
  }
}

PromptReader::PromptReader(const Codec* codec, std::optional<chat::Template> form) : codec_(codec) {
  if (!form) return;
  if (this->codec().tokenizer() == nullptr)
    throw Error("the template " + form->name + " needs a tokenizer.json: bytes have no special tokens");
  template_end_ = form->eos;
  renderer_.emplace(std::move(*form), *codec_->tokenizer(), codec_->special());
}

const Codec& PromptReader::codec() const {
  if (codec_ != nullptr) return *codec_;
  throw Error("the checkpoint has no tokenizer", {{"tokenizer", "FILE, or bytes"}, {"ids", "for token ids"}});
}

Ids PromptReader::render(const chat::Conversation& conversation) const {
  token::Encoder encoder(*codec().tokenizer());
  return renderer_->render_prompt(conversation, encoder);
}

Ids PromptReader::of_text(const std::string& text) const {
  return renderer_ ? render({.system = {}, .turns = {{.user = text, .answer = {}}}}) : codec().encode(text);
}

Ids PromptReader::of_record(const json::Value& record) const {
  if (!record.is_object()) throw Error("the record is not an object");
  const json::Object& object = record.as_object();
  check_one_prompt(object);
  if (const json::Value* const text = object.find("text")) {
    if (!text->is_string()) throw Error("\"text\" is not a string");
    return of_text(text->as_string());
  }
  if (const json::Value* const list = object.find("ids")) {
    if (!list->is_array()) throw Error("\"ids\" is not a list");
    Ids ids;
    for (const json::Value& id : list->as_array())
      ids.push_back(id_of(id.is_int() ? std::optional(id.as_int()) : std::nullopt, "an entry of \"ids\""));
    return ids;
  }
  const std::optional<chat::Schema> schema = chat::guess_schema(record, {});
  if (!schema || schema->format == chat::Format::alpaca)
    throw Error("the record has none of \"messages\", \"conversations\", \"text\" and \"ids\"");
  if (!renderer_) throw Error("the record is a conversation", {{"template", "to render it"}});
  const chat::Conversation question = question_of(record, *schema);
  if (ignored_)
    for (const std::string& text : question.ignored) ignored_(text);
  return render(question);
}

}  // namespace fp8::generate
