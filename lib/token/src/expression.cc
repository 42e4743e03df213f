// Compiles and matches with PCRE2, with limits on pattern length, steps and memory. The only file that includes
// pcre2.h.
#include "expression.h"

#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "fp8/base/error.h"
#include "translate.h"
#include "unicode.h"

namespace fp8::token {
namespace {

constexpr std::size_t kLongestPattern = std::size_t{1} << 16U;
constexpr std::uint32_t kMostSteps = 10'000'000;
constexpr std::uint32_t kMostHeapKilobytes = 65536;
constexpr std::size_t kLeastStack = std::size_t{64} << 10U, kMostStack = std::size_t{8} << 20U;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

Expression::Expression(std::string_view pattern, std::uint32_t options, const std::string& what) : what_(what) {
  if (pattern.size() > kLongestPattern)
    throw Error(what + ": longer than " + std::to_string(kLongestPattern) + " bytes");
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context) throw Error(what + ": out of memory for an expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(units(pattern), pattern.size(), options | PCRE2_UTF, &error, &offset, context.get());
  if (code == nullptr) throw Error(what + ": invalid expression: " + message_of(error));
  code_.reset(code, pcre2_code_free);
  // Without a just-in-time compiler, pcre2_match() interprets the pattern.
  const int compiled = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  if (compiled != 0 && compiled != PCRE2_ERROR_JIT_BADOPTION) throw Error(what + ": " + message_of(compiled));
}

Expression Expression::of_pattern(std::string_view pattern, const std::string& what) {
  return {translate(pattern, what), PCRE2_UCP | PCRE2_MULTILINE, what};
}

Expression Expression::of_text(std::string_view text, const std::string& what) {
  if (text.empty()) throw Error(what + ": empty");
  return {text, PCRE2_LITERAL, what};
}

Expression Expression::of_pcre2(std::string_view pattern, const std::string& what) {
  return {pattern, PCRE2_UCP, what};
}

bool Expression::matches_empty() const {
  std::uint32_t empty = 0;
  return pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &empty) != 0 || empty != 0;
}

bool Expression::looks_behind() const {
  std::uint32_t characters = 0;
  if (pcre2_pattern_info(code_.get(), PCRE2_INFO_MAXLOOKBEHIND, &characters) != 0) return true;
  return characters > 0;
}

void Matcher::Free::operator()(pcre2_real_match_data_8* data) const { pcre2_match_data_free(data); }
void Matcher::Free::operator()(pcre2_real_match_context_8* context) const { pcre2_match_context_free(context); }
void Matcher::Free::operator()(pcre2_real_jit_stack_8* stack) const { pcre2_jit_stack_free(stack); }

Matcher::Matcher()
    : data_(pcre2_match_data_create(1, nullptr)),
      stack_(pcre2_jit_stack_create(kLeastStack, kMostStack, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  if (!data_ || !context_) throw Error("expression: out of memory");
  pcre2_set_match_limit(context_.get(), kMostSteps);
  pcre2_set_heap_limit(context_.get(), kMostHeapKilobytes);
  if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
}

Found Matcher::find(const Expression& expression, std::string_view text, std::size_t from, bool open, Span& span) {
  const std::uint32_t options = PCRE2_NO_UTF_CHECK | (open ? PCRE2_PARTIAL_HARD : 0U);
  const int found =
      pcre2_match(expression.code_.get(), units(text), text.size(), from, options, data_.get(), context_.get());
  if (found == PCRE2_ERROR_NOMATCH) return Found::none;
  const bool partial = found == PCRE2_ERROR_PARTIAL;
  // 0 means a match with more groups than the one pair of offsets in data_.
  if (found < 0 && !partial) throw Error(expression.what_ + ": too many steps on this text: " + message_of(found));
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data_.get());
  span = {offsets[0], offsets[1]};
  return partial ? Found::partial : Found::match;
}

Found Matches::next(Span& span) {
  while (from_ <= text_.size()) {
    const Found found = matcher_.find(expression_, text_, from_, open_, span);
    if (found != Found::match) return found;
    if (span.begin != span.end || span.end != last_end_) {
      from_ = last_end_ = span.end;
      return found;
    }
    from_ += from_ < text_.size() ? character_length(text_[from_]) : 1;
  }
  return Found::none;
}

}  // namespace fp8::token
