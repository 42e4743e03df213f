/// Regular expressions of tokenizer.json, which are written for Oniguruma (Ruby's syntax), compiled by PCRE2 with its
/// just-in-time compiler. The only user of PCRE2.
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

/// A compiled expression. It does not change; copies share it.
class Expression {
 public:
  /// Compiles `pattern`, an expression of Oniguruma. Throws Error `what: reason` for what is no expression and for what
  /// PCRE2 would understand differently.
  static Expression of_pattern(std::string_view pattern, const std::string& what);
  /// Matches `text` itself, which is not empty.
  static Expression of_text(std::string_view text, const std::string& what);
  /// Compiles `pattern`, an expression of PCRE2 that this library brings.
  static Expression of_pcre2(std::string_view pattern);

  /// Whether it can match nothing at all.
  bool matches_empty() const;
  /// Whether a match can depend on what stands before the place where its search begins.
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
  std::size_t end = 0;    ///< behind the last byte
};

/// What a search found.
enum class Found : std::uint8_t {
  none,     ///< no match
  match,    ///< a match
  partial,  ///< the text ended before it was clear whether there is a match; it would begin at Span::begin
};

/// Searches. Holds the memory that matching needs: one for each thread.
class Matcher {
 public:
  /// Throws Error when there is no memory.
  Matcher();

  /// The first match in `text` (valid UTF-8) that begins at `from` or later. With `open`, the text may go on, and
  /// partial is returned when what follows could make a difference. Throws Error when the expression takes too many
  /// steps on this text.
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

/// All matches in a text, front to back, as Oniguruma's binding for Rust gives them: an empty match where the last one
/// ended does not count.
class Matches {
 public:
  /// Of `expression` in `text`; see Matcher::find for `open`. All three must outlive this.
  Matches(Matcher& matcher, const Expression& expression, std::string_view text, bool open)
      : matcher_(matcher), expression_(expression), text_(text), open_(open) {}
  /// The next match.
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
