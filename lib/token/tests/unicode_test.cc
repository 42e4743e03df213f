// UTF-8, normalization and the byte alphabet.
#include "unicode.h"

#include <gtest/gtest.h>

#include "byte_alphabet.h"
#include "fp8/base/text.h"

namespace fp8::token {
namespace {

TEST(Unicode, ReadsAppendedCharacters) {
  for (const char32_t code : {0x0U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xFFFFU, 0x10000U, 0x10FFFFU}) {
    std::string text = "x";
    append_character(text, code);
    EXPECT_TRUE(valid_utf8(text));
    EXPECT_EQ(character_at(text, 1).code, code);
    EXPECT_EQ(character_at(text, 1).length, text.size() - 1);
    EXPECT_EQ(character_before(text, text.size()), 1U);
  }
}

// Source: Unicode 15, table 3-8 and the examples before it.
TEST(Unicode, ReplacesMaximalInvalidSubparts) {
  EXPECT_EQ(replace_invalid("a\xF1\x80\x80\xE1\x80\xC2"
                            "b"),
            "a\uFFFD\uFFFD\uFFFDb");
  EXPECT_EQ(replace_invalid("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                            "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(replace_invalid("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid("\xE2\x82"), "\uFFFD");
  EXPECT_EQ(replace_invalid("\u00e9\xF4\x90"), "\u00e9\uFFFD\uFFFD");
}

TEST(Unicode, NormalizesToEachForm) {
  std::vector<std::int32_t> codes;
  const auto normal = [&](const char* text, Form form) {
    std::string out = "<";
    append_normalized(out, text, form, codes);
    return out;
  };
  EXPECT_EQ(normal("e\u0301", Form::nfc), "<\u00e9");
  EXPECT_EQ(normal("\u00e9", Form::nfd), "<e\u0301");
  EXPECT_EQ(normal("\uFB01\u2460", Form::nfkc), "<fi1");
  EXPECT_EQ(normal("\u1100\u1161\u11A8", Form::nfc), "<\uAC01");
  EXPECT_EQ(normal("o\u0302\u0323", Form::nfc), "<\u1ED9");
  EXPECT_EQ(normal("\uFDFA", Form::nfkd).size(), 1 + 33U) << "one character becomes 18";
  EXPECT_EQ(normal("", Form::nfc), "<");
}

TEST(Unicode, AppendsLowerCase) {
  std::string text;
  for (const char32_t code : {U'A', U'\u0130', U'\u1E9E', U'\u03A3', U'a'}) append_lower_case(text, code);
  EXPECT_EQ(text, "ai\u0307\u00DF\u03C3a");
}

TEST(ByteAlphabet, MapsEveryByteToACharacterAndBack) {
  for (unsigned b = 0; b < 256; ++b) {
    const auto byte = static_cast<unsigned char>(b);
    EXPECT_EQ(byte_of_character(character_of_byte(byte)), byte);
  }
  EXPECT_EQ(character_of_byte(' '), U'\u0120');
  EXPECT_EQ(character_of_byte(0xAD), U'\u0143') << "the last of the 68 bytes that are not printable";
  EXPECT_EQ(byte_of_character(U' '), std::nullopt);
  std::string bytes;
  append_bytes_of(bytes, "\u0120a");
  append_bytes_of(bytes, "\u0120 b");
  EXPECT_EQ(bytes, " a\u0120 b") << "a text with a character outside the alphabet is unchanged";
}

}  // namespace
}  // namespace fp8::token
