/// The printable characters that byte-level tokenizers write for bytes: 33 to 126, 161 to 172 and 174 to 255 stand for
/// themselves, the other 68 bytes, in their order, for U+0100 and on. Source: GPT-2, encoder.py.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fp8::token {

/// The character of a byte.
char32_t character_of_byte(unsigned char byte);

/// The byte of a character of the alphabet; nothing for any other.
std::optional<unsigned char> byte_of_character(char32_t code);

/// Appends the character of each byte.
void append_byte_characters(std::string& text, std::string_view bytes);

/// Appends the bytes that `text` (valid UTF-8) stands for; `text` itself where a character is not of the alphabet.
void append_bytes_of(std::string& bytes, std::string_view text);

}  // namespace fp8::token
