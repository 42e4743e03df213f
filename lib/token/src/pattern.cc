// Python's expressions, as far as PCRE2 matches the same texts. A full match with this subset is membership in a set of
// texts, on which the order of alternatives and the values of groups have no influence.
#include "fp8/token/pattern.h"

#include <cctype>

#include "expression.h"
#include "fp8/base/error.h"

namespace fp8::token {
namespace {

// Walks over a pattern once, and throws for what is not in the subset.
class Subset {
 public:
  Subset(std::string_view pattern, const std::string& what) : pattern_(pattern), what_(what) {}

  void check() {
    bool repeated = false;  // the last element has a quantifier
    while (at_ < pattern_.size()) {
      const bool quantifier = std::string_view("*+?{").find(pattern_[at_]) != std::string_view::npos;
      if (quantifier && repeated) refuse("two quantifiers in a row, or a possessive one");
      element();
      repeated = quantifier;
      if (quantifier && peek() == '?') ++at_;  // lazy
    }
    if (depth_ != 0) refuse("a parenthesis that is not closed");
  }

 private:
  [[noreturn]] void refuse(const std::string& construct) const {
    throw Error(what_ + ": an expression with " + construct + ", which is not evaluated");
  }

  char peek() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }

  void element() {
    const char c = pattern_[at_++];
    if (c < ' ' || c > '~') refuse("a character that is not printable ASCII");
    if (c == '\\') escape("dDwWsSbB");
    if (c == '[') set();
    if (c == '(') open();
    if (c == ')' && depth_-- == 0) refuse("a parenthesis that is not open");
    if (c == '{') count();
  }

  void escape(std::string_view letters) {
    const char c = peek();
    const bool known = std::ispunct(static_cast<unsigned char>(c)) != 0 || letters.find(c) != std::string_view::npos;
    if (c == '\0' || !known) refuse(c == '\0' ? "a backslash at its end" : std::string("the escape \\") + c);
    ++at_;
  }

  void set() {
    if (peek() == '^') ++at_;
    if (peek() == ']') refuse("a set that begins with ]");
    while (peek() != ']') {
      const char c = peek();
      if (c < ' ' || c > '~')
        refuse(c == '\0' ? "a set that is not closed" : "a character that is not printable ASCII");
      if (c == '[') refuse("[ in a set");
      ++at_;
      if (c == '\\') escape("dDwWsS");
    }
    ++at_;
  }

  void open() {
    ++depth_;
    if (peek() == '*') refuse("a verb");
    if (peek() != '?') return;
    ++at_;
    if (std::string_view(":=!").find(peek()) == std::string_view::npos || peek() == '\0')
      refuse("a group that begins with (?" + std::string(1, peek() == '\0' ? ' ' : peek()));
    ++at_;
  }

  // {n}, {n,} or {n,m}
  void count() {
    const auto digits = [&] {
      const std::size_t from = at_;
      while (std::isdigit(static_cast<unsigned char>(peek())) != 0) ++at_;
      return at_ > from;
    };
    bool valid = digits();
    if (valid && peek() == ',') ++at_, (void)digits();
    valid = valid && peek() == '}';
    if (!valid) refuse("a brace that is no quantifier");
    ++at_;
  }

  std::string_view pattern_;
  const std::string& what_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::vector<bool> full_matches(std::string_view pattern, const std::vector<std::string>& texts,
                               const std::string& what) {
  Subset(pattern, what).check();
  const Expression expression = Expression::of_pcre2("\\A(?:" + std::string(pattern) + ")\\z", what);
  Matcher matcher;
  std::vector<bool> matched;
  for (const std::string& text : texts) {
    Span span;
    matched.push_back(matcher.find(expression, text, 0, false, span) == Found::match);
  }
  return matched;
}

}  // namespace fp8::token
