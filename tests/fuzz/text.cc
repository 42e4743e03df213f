// Text helpers: terminal_safe() returns UTF-8 without control characters, numbers and digests read back, glob_match()
// ends.
#include "fp8/base/text.h"

#include "fp8/base/digest.h"
#include "fuzz.h"

FP8_FUZZ(text) {
  using namespace fp8;
  const std::string_view text = fuzz::text_of(data, size);
  return fuzz::judge([&] {
    const std::string shown = terminal_safe(text);
    fuzz::require(valid_utf8(shown) && shown.find('\x1b') == std::string::npos, "what is shown is safe");
    fuzz::require(terminal_safe(shown) == shown, "what is safe stays");
    if (const auto number = parse_double(text))
      fuzz::require(parse_double(format_double(*number)) == number, "a number reads back");
    if (const auto digest = Digest::from_hex(text)) fuzz::require(digest->hex() == text, "a digest reads back");
    (void)glob_match(text.substr(0, size / 2), text.substr(size / 2));
    if (!parse_int64(text) && !parse_uint64(text)) throw Error("no integer");
  });
}
