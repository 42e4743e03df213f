/// The byte alphabet: the printable characters in which byte-level tokenizers write bytes. Bytes 33 to 126, 161 to 172
/// and 174 to 255 map to the same code point, the other 68 bytes, in order, to U+0100 to U+0143. Source: GPT-2,
/// encoder.py.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fp8::token {

/// The character of a byte.
char32_t character_of_byte(unsigned char byte);

/// The byte of a character of the alphabet; nullopt for any other character.
std::optional<unsigned char> byte_of_character(char32_t code);

/// Appends the character of each byte of `bytes`.
void append_byte_characters(std::string& text, std::string_view bytes);

/// Appends the bytes of the characters of `text` (valid UTF-8), or `text` itself if a character is not in the alphabet.
void append_bytes_of(std::string& bytes, std::string_view text);

}  // namespace fp8::token
