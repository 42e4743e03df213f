// Text of tokens as they arrive: characters of several tokens, bytes that are no characters, stop texts, spaces that
// decoders remove.
#include "fp8/generate/text_stream.h"

#include <gtest/gtest.h>

#include "fp8/base/text.h"

namespace fp8::generate {
namespace {

using Parts = std::vector<std::string>;

// Parts of a stream over `ids`, the last from finish().
Parts parts_of(const Codec& codec, const std::vector<std::uint32_t>& ids, const Parts& stops = {},
               const std::vector<std::uint32_t>& prompt = {}) {
  TextStream stream(codec, prompt, stops);
  Parts parts;
  for (const std::uint32_t id : ids) parts.push_back(stream.add(id));
  parts.push_back(stream.finish());
  for (const std::string& part : parts) EXPECT_TRUE(valid_utf8(part));
  return parts;
}

std::string joined(const Parts& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

TEST(TextStream, CharactersAreWhole) {
  const Codec bytes;
  EXPECT_EQ(parts_of(bytes, bytes.encode("a\u00E9\u4F60")), (Parts{"a", "", "\u00E9", "", "", "\u4F60", ""}));
  EXPECT_EQ(parts_of(bytes, {0x41, 0xE4, 0xBD}), (Parts{"A", "", "", "\uFFFD"})) << "the last character is incomplete";
  EXPECT_EQ(joined(parts_of(bytes, {0xFF, 0x41, 300})), "\uFFFDA") << "not UTF-8, and an id that is no byte";
}

TEST(TextStream, ACharacterMayBeginInThePrompt) {
  EXPECT_EQ(joined(parts_of(Codec(), {0xBD, 0xA0, 0x41}, {}, {0x20, 0xE4})), "\u4F60A");
}

TEST(TextStream, BytesOfThePromptThatAreNoCharacterAreNotRepeated) {
  const Codec bytes;
  for (const std::vector<std::uint32_t>& prompt : {std::vector<std::uint32_t>{0xFF},
                                                   {0x20, 0xE4},
                                                   {0xE4, 0xBD},
                                                   {0xFF, 0xFE, 0xFD},
                                                   {0xFF, 0xFE, 0xFD, 0xFC, 0xFB},
                                                   {0xF0, 0x9F, 0x98}}) {
    EXPECT_EQ(joined(parts_of(bytes, {'a', 'b'}, {}, prompt)), "ab") << prompt.size();
    EXPECT_EQ(joined(parts_of(bytes, {0xFF, 'b'}, {}, prompt)), "\uFFFDb") << prompt.size();
    EXPECT_EQ(joined(parts_of(bytes, {0xFF}, {}, prompt)), "\uFFFD") << prompt.size();
    EXPECT_EQ(joined(parts_of(bytes, {300}, {}, prompt)), "") << prompt.size();
  }
  EXPECT_EQ(joined(parts_of(bytes, {0xA0, 0xFF, 'b'}, {}, {0xE4, 0xBD})), "\u4F60\uFFFDb");
  EXPECT_EQ(joined(parts_of(bytes, {'a'}, {}, {0xFF, 'x'})), "a");
}

TEST(TextStream, PartsAreTheWholeText) {
  const Codec bytes;
  std::vector<std::uint32_t> ids;
  std::uint32_t state = 1;  // state of a linear congruential generator
  for (int i = 0; i < 2000; ++i) ids.push_back((state = state * 1664525U + 1013904223U) >> 24U);
  EXPECT_EQ(joined(parts_of(bytes, ids)), bytes.decode(ids)) << "random bytes";
  std::string text;
  for (int i = 0; i < 300; ++i) text += i % 3 == 0 ? "\u4F60\u597D" : i % 3 == 1 ? "ab " : "\U0001F600";
  EXPECT_EQ(joined(parts_of(bytes, bytes.encode(text))), text);
}

TEST(TextStream, NothingFollowsAStopText) {
  const Codec bytes;
  EXPECT_EQ(parts_of(bytes, bytes.encode("one\n\ntwo"), {"\n\n"}), (Parts{"o", "n", "e", "", "", "", "", "", ""}));
  EXPECT_EQ(joined(parts_of(bytes, bytes.encode("one\ntwo"), {"\n\n"})), "one\ntwo");
  EXPECT_EQ(joined(parts_of(bytes, bytes.encode("abcabd"), {"abd"})), "abc");
  EXPECT_EQ(joined(parts_of(bytes, bytes.encode("a stop, END"), {"END", "stop"})), "a ") << "the first that occurs";
  EXPECT_EQ(joined(parts_of(bytes, bytes.encode("ends with EN"), {"END", ""})), "ends with EN");
  TextStream stream(bytes, {}, {"b"});
  (void)stream.add('a');
  EXPECT_FALSE(stream.stopped());
  (void)stream.add('b');
  EXPECT_TRUE(stream.stopped());
}

// A tokenizer with byte fallback whose decoder removes the first space, as Llama 2's.
Codec fallback() {
  std::string vocabulary = R"("<unk>":0,"\u2581hello":1,"\u2581world":2)";
  constexpr const char* kHex = "0123456789ABCDEF";
  for (unsigned b = 0; b < 256; ++b)
    vocabulary += std::string(",\"<0x") + kHex[b / 16] + kHex[b % 16] + ">\":" + std::to_string(b + 3);
  return Codec(token::Tokenizer::parse(
      R"({"model":{"type":"BPE","byte_fallback":true,"unk_token":"<unk>","fuse_unk":true,"vocab":{)" + vocabulary +
          R"(},"merges":[]},"added_tokens":[],"decoder":{"type":"Sequence","decoders":[
          {"type":"Replace","pattern":{"String":"\u2581"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
          {"type":"Strip","content":" ","start":1,"stop":0}]}})",
      "tokenizer.json"));
}

TEST(TextStream, ByteFallback) {
  const Codec codec = fallback();
  EXPECT_EQ(parts_of(codec, {1, 2}), (Parts{"hello", " world", ""}));
  EXPECT_EQ(parts_of(codec, {2}, {}, {1}), (Parts{" world", ""})) << "the space between prompt and text";
  std::vector<std::uint32_t> ids;
  std::string text;
  for (int i = 0; i < 200; ++i) {
    for (const unsigned b : {0xE4U, 0xBDU, 0xA0U}) ids.push_back(b + 3);
    text += "\u4F60";
  }
  EXPECT_EQ(joined(parts_of(codec, ids)), text) << "one run of 600 bytes";
}

}  // namespace
}  // namespace fp8::generate
