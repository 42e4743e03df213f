#include "parts.h"

#include "fp8/base/error.h"
#include "unicode.h"

namespace fp8::token {
namespace {

constexpr int kMostParts = 64;

}  // namespace

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 40;
  if (text.size() <= kMost) return "\"" + std::string(text) + "\"";
  return "\"" + std::string(text.substr(0, character_before(text, kMost + 1))) + "...\"";
}

void for_each_part(const json::Value& part, std::string_view list, const std::string& what,
                   const std::function<void(const json::Object& part, const std::string& type)>& read) {
  int count = 0;
  const std::function<void(const json::Value&)> walk = [&](const json::Value& value) {
    if (value.is_null()) return;
    if (!value.is_object()) throw Error(what + ": not an object");
    const json::Object& object = value.as_object();
    const std::string& type = object.get_string("type", what);
    if (type == "Sequence") {
      for (const json::Value& child : object.get_array(list, what)) walk(child);
      return;
    }
    if (++count > kMostParts) throw Error(what + ": more than " + std::to_string(kMostParts) + " parts");
    read(object, type);
  };
  walk(part);
}

void refuse_type(const std::string& what, std::string_view type) {
  throw Error(what + ": " + shown(type) + " is not supported");
}

std::string get_character(const json::Object& part, std::string_view key, const std::string& what) {
  const std::string& text = part.get_string(key, what);
  if (text.empty() || character_length(text[0]) != text.size()) {
    throw Error(what + ": \"" + std::string(key) + "\" is not one character");
  }
  return text;
}

}  // namespace fp8::token
