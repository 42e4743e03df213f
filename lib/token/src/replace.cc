#include "replace.h"

#include "fp8/base/error.h"
#include "unicode.h"

namespace fp8::token {
namespace {

Expression pattern_of(const json::Object& pattern, const std::string& what) {
  if (pattern.contains("String")) return Expression::of_text(pattern.get_string("String", what), what);
  return Expression::of_pattern(pattern.get_string("Regex", what), what);
}

bool is_character(const json::Object& pattern, const std::string& what) {
  const std::string text = pattern.get_string_or("String", "", what);
  return !text.empty() && character_length(text[0]) == text.size();
}

}  // namespace

Replace::Replace(const json::Object& part, const std::string& what)
    : content_(part.get_string("content", what)),
      pattern_(pattern_of(part.get_object("pattern", what), what + ": Replace")),
      one_character_(is_character(part.get_object("pattern", what), what)) {
  if (pattern_.matches_empty())
    throw Error(what + ": Replace: an expression that matches an empty string is not supported");
}

void Replace::append(std::string& out, std::string_view text, Matcher& matcher, std::size_t most) const {
  Matches matches(matcher, pattern_, text, false);
  std::size_t at = 0;
  for (Span span; matches.next(span) == Found::match; at = span.end) {
    out += text.substr(at, span.begin - at);
    if (out.size() + content_.size() > most)
      throw Error("the tokenizer's Replace makes a text more than 256 times as long");
    out += content_;
  }
  out += text.substr(at);
}

}  // namespace fp8::token
