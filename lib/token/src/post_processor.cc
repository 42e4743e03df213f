// Reads the post-processor. Each part of a Sequence adds its ids around those of the parts before it.
#include "post_processor.h"

#include <utility>

#include "fp8/base/error.h"
#include "fp8/token/tokenizer.h"
#include "parts.h"

namespace fp8::token {
namespace {

std::uint32_t id_of(const json::Value& value, const std::string& what) {
  const std::int64_t id = value.is_int() ? value.as_int() : -1;
  if (id < 0 || id >= kMaxIds) throw Error(what + ": an id is not an integer from 0 to " + std::to_string(kMaxIds - 1));
  return static_cast<std::uint32_t>(id);
}

PostProcessor read_template(const json::Object& part, const std::string& what) {
  PostProcessor found;
  const json::Object& special = part.get_object("special_tokens", what);
  int texts = 0;
  for (const json::Value& piece : part.get_array("single", what)) {
    if (!piece.is_object()) throw Error(what + ": a piece of \"single\" is not an object");
    if (piece.as_object().contains("Sequence")) {
      ++texts;
      continue;
    }
    const std::string& name = piece.as_object().get_object("SpecialToken", what).get_string("id", what);
    for (const json::Value& id : special.get_object(name, what).get_array("ids", what))
      (texts == 0 ? found.before : found.behind).push_back(id_of(id, what));
  }
  if (texts != 1) throw Error(what + ": a template must contain the text exactly once");
  return found;
}

PostProcessor read_pair(const json::Object& part, const std::string& what) {
  const auto id = [&](const char* key) {
    const json::Array& pair = part.get_array(key, what);
    if (pair.size() != 2) throw Error(what + ": \"" + key + "\" is not a token and its id");
    return id_of(pair[1], what);
  };
  return {{id("cls")}, {id("sep")}};
}

}  // namespace

PostProcessor read_post_processor(const json::Value& part, const std::string& what) {
  PostProcessor all;
  for_each_part(part, "processors", what, [&](const json::Object& object, const std::string& type) {
    PostProcessor next;
    if (type == "TemplateProcessing") {
      next = read_template(object, what);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      next = read_pair(object, what);
    } else if (type != "ByteLevel") {
      refuse_type(what, type);
    }
    next.before.insert(next.before.end(), all.before.begin(), all.before.end());
    all.behind.insert(all.behind.end(), next.behind.begin(), next.behind.end());
    all.before = std::move(next.before);
  });
  return all;
}

}  // namespace fp8::token
