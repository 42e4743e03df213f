/// UTF-8 and the Unicode properties that tokenizers need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/token/utf8.h"

namespace fp8::token {

/// The Metaspace character, which replaces a space in normalized texts.
inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";

/// A character of a text.
struct Character {
  char32_t code = 0;       ///< code point
  std::size_t length = 0;  ///< bytes in UTF-8
};

/// Length in bytes of the UTF-8 character that begins with `first`.
inline std::size_t character_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The character at `at` < text.size(). `text` is valid UTF-8.
inline Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const std::size_t length = character_length(text[at]);
  if (length == 1) return {byte(0), 1};
  char32_t code = byte(0) & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) code = code << 6U | (byte(i) & 0x3FU);
  return {code, length};
}

/// The first byte of the character that ends before `end` > 0. `text` is valid UTF-8.
inline std::size_t character_before(std::string_view text, std::size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80);
  return end;
}

/// Appends a character as UTF-8.
void append_character(std::string& text, char32_t code);

/// Whether the character has the property White_Space.
bool is_white_space(char32_t code);

/// Whether the character is a mark (general category M).
bool is_mark(char32_t code);

/// Appends the lower case of a character, one or two characters.
void append_lower_case(std::string& text, char32_t code);

/// Normalization forms of Unicode.
enum class Form : std::uint8_t { nfc, nfd, nfkc, nfkd };

/// Appends the normalized `text` to `out`; `codes` is a scratch buffer.
void append_normalized(std::string& out, std::string_view text, Form form, std::vector<std::int32_t>& codes);

}  // namespace fp8::token
