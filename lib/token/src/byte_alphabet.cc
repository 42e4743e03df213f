// The byte alphabet as two tables computed at compile time.
#include "byte_alphabet.h"

#include "unicode.h"

namespace fp8::token {
namespace {

constexpr std::size_t kBytes = 256;
constexpr std::size_t kCodes = 324;  // 256 and one for each of the 68 bytes that are not printable

struct Tables {
  std::array<char32_t, kBytes> code{};
  std::array<int, kCodes> byte{};
};

constexpr Tables make_tables() {
  Tables t;
  t.byte.fill(-1);
  char32_t next = kBytes;
  for (std::size_t b = 0; b < kBytes; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    t.code.at(b) = printable ? static_cast<char32_t>(b) : next++;
    t.byte.at(t.code.at(b)) = static_cast<int>(b);
  }
  return t;
}

constexpr Tables kTables = make_tables();

}  // namespace

char32_t character_of_byte(unsigned char byte) { return kTables.code.at(byte); }

std::optional<unsigned char> byte_of_character(char32_t code) {
  if (code >= kCodes || kTables.byte.at(code) < 0) return std::nullopt;
  return static_cast<unsigned char>(kTables.byte.at(code));
}

void append_byte_characters(std::string& text, std::string_view bytes) {
  for (const char c : bytes) append_character(text, character_of_byte(static_cast<unsigned char>(c)));
}

void append_bytes_of(std::string& bytes, std::string_view text) {
  const std::size_t begin = bytes.size();
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    const std::optional<unsigned char> byte = byte_of_character(c.code);
    if (!byte) {
      bytes.resize(begin);
      bytes += text;
      return;
    }
    bytes.push_back(static_cast<char>(*byte));
    at += c.length;
  }
}

}  // namespace fp8::token
