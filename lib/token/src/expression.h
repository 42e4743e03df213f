/// Regular expressions of tokenizer.json, which have the syntax of Oniguruma (Ruby), compiled by PCRE2 with its
/// just-in-time compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace fp8::token {

/// A compiled expression. Immutable; copies share the compiled code.
class Expression {
 public:
  /// Compiles `pattern`, an expression of Oniguruma. Throws Error `what: reason` if the pattern is invalid or would
  /// match differently in PCRE2.
  static Expression of_pattern(std::string_view pattern, const std::string& what);
  /// An expression that matches the literal `text`, which must not be empty.
  static Expression of_text(std::string_view text, const std::string& what);
  /// Compiles `pattern`, in the syntax of PCRE2.
  static Expression of_pcre2(std::string_view pattern, const std::string& what = "expression");

  /// Whether the expression can match an empty string.
  bool matches_empty() const;
  /// Whether a match can depend on text before the start of the search.
  bool looks_behind() const;

 private:
  friend class Matcher;
  Expression(std::string_view pattern, std::uint32_t options, const std::string& what);
  std::shared_ptr<const pcre2_real_code_8> code_;
  std::string what_;
};

/// Bytes [begin, end) of a text.
struct Span {
  std::size_t begin = 0;  ///< first byte
  std::size_t end = 0;    ///< one past the last byte
};

/// Result of a search.
enum class Found : std::uint8_t {
  none,     ///< no match
  match,    ///< a match
  partial,  ///< the text ends within a possible match, which begins at Span::begin
};

/// Searches for expressions. Contains the match data and the stack of PCRE2: use one matcher per thread.
class Matcher {
 public:
  /// Throws Error if out of memory.
  Matcher();

  /// Finds the first match in `text` (valid UTF-8) that begins at `from` or later. With `open`, more text may follow,
  /// and partial is returned if it could change the result. Throws Error if the expression takes too many steps on this
  /// text.
  Found find(const Expression& expression, std::string_view text, std::size_t from, bool open, Span& span);

 private:
  struct Free {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
    void operator()(pcre2_real_jit_stack_8* stack) const;
  };
  std::unique_ptr<pcre2_real_match_data_8, Free> data_;
  std::unique_ptr<pcre2_real_jit_stack_8, Free> stack_;
  std::unique_ptr<pcre2_real_match_context_8, Free> context_;
};

/// Iterates over the matches in a text as Oniguruma's binding for Rust does: an empty match at the end of the previous
/// match is skipped.
class Matches {
 public:
  /// Matches of `expression` in `text`; see Matcher::find for `open`. All arguments must outlive this object.
  Matches(Matcher& matcher, const Expression& expression, std::string_view text, bool open)
      : matcher_(matcher), expression_(expression), text_(text), open_(open) {}
  /// Finds the next match.
  Found next(Span& span);

 private:
  Matcher& matcher_;
  const Expression& expression_;
  std::string_view text_;
  bool open_;
  std::size_t from_ = 0;
  std::size_t last_end_ = std::string_view::npos;
};

}  // namespace fp8::token
