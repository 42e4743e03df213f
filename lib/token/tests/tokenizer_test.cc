// Small tokenizers: look-ups, error messages, limits of expressions, division into parts.
#include "fp8/token/tokenizer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tokenizer_files.h"

namespace fp8::token {
namespace {

using test::error_of;
using Ids = std::vector<std::uint32_t>;

// A model of text with the entries a, b, c, space, "ab" and "abc".
constexpr const char* kModel =
    R"({"type":"BPE","vocab":{"a":0,"b":1,"c":2," ":3,"ab":4,"abc":5},"merges":["a b","ab c"]})";

// A tokenizer.json of these members and this model.
std::string file_of(const std::string& members, const std::string& model = kModel) {
  return "{" + members + (members.empty() ? "" : ",") + "\"model\":" + model + "}";
}

std::string added(const std::string& content, int id) {
  return R"({"id":)" + std::to_string(id) + R"(,"content":")" + content +
         R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true})";
}

std::string pre_tokenizer(const std::string& pattern) {
  return R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":")" + pattern +
         R"("},"behavior":"Isolated","invert":false})";
}

// The error message for a tokenizer.json, without its path.
std::string refusal(const std::string& text) {
  const std::string message = error_of([&] { tokenizer_of(text); });
  const std::size_t name = message.find("tokenizer.json");
  return name == std::string::npos ? message : message.substr(name + std::string("tokenizer.json: ").size());
}

TEST(Tokenizer, MergesAndLooksUpIds) {
  const Tokenizer t = tokenizer_of(file_of(R"("added_tokens":[)" + added("<s>", 6) + "]"));
  EXPECT_EQ(t.vocab_size(), 7);
  EXPECT_EQ(t.id_of("abc"), 5U);
  EXPECT_EQ(t.id_of("<s>"), 6U);
  EXPECT_EQ(t.id_of("<s"), std::nullopt);
  EXPECT_EQ(encode(t, "abcab c<s>ba"), (Ids{5, 4, 3, 2, 6, 1, 0}));
  EXPECT_EQ(encode(t, ""), Ids{});
  EXPECT_EQ(encode(t, "axb"), (Ids{4}))
      << "without an unknown token, an unknown character is dropped before merging, as in the reference";
  EXPECT_EQ(t.decode(Ids{5, 6, 99, 0}, true), "abc a");
}

TEST(Tokenizer, ReadsAFileOrItsFolder) {
  const test::TemporaryFolder folder;
  folder.write("tokenizer.json", file_of(""));
  EXPECT_EQ(Tokenizer(folder.path()).path(), folder.at("tokenizer.json"));
  EXPECT_HOLDS(error_of([&] { Tokenizer(folder.at("none.json")); }), "none.json: ");
}

TEST(Tokenizer, TruncationAndPaddingDoNotChangeIds) {
  const char* const kCut =
      R"("truncation":{"max_length":1,"strategy":"LongestFirst"},"padding":{"strategy":{"Fixed":9}})";
  EXPECT_EQ(encode(tokenizer_of(file_of(kCut)), "abcab c"), (Ids{5, 4, 3, 2}));
}

TEST(Tokenizer, SaysHowToMakeAMissingFile) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(error_of([&] { Tokenizer(folder.path()); }), folder.path() + ": has no tokenizer.json");
  const std::string pieces = folder.write("tokenizer.model", "x");
  for (const std::string& path : {folder.path(), pieces}) {
    const std::string message = error_of([&] { Tokenizer{path}; });
    EXPECT_HOLDS(message,
                 "; the Python packages transformers and sentencepiece make one of its tokenizer.model: python3 -c "
                 "\"from transformers import ");
    EXPECT_HOLDS(message, "from_pretrained('" + folder.path() + "')");
  }
}

TEST(Tokenizer, MergesLongPiecesAsShortOnes) {
  const Tokenizer t = tokenizer_of(file_of(""));
  std::string text;
  Ids wanted;
  for (int i = 0; i < 2000; ++i) {
    text += i % 3 == 0 ? "abc" : i % 3 == 1 ? "ab" : "cb";
    const Ids ids = i % 3 == 0 ? Ids{5} : i % 3 == 1 ? Ids{4} : Ids{2, 1};
    if (i % 3 == 2) wanted.back() = 5;  // "ab" and the "c" of "cb"
    wanted.insert(wanted.end(), ids.begin() + (i % 3 == 2 ? 1 : 0), ids.end());
  }
  EXPECT_EQ(encode(t, text), wanted);
}

TEST(Tokenizer, NamesUnsupportedParts) {
  EXPECT_EQ(refusal("[]"), "not an object");
  EXPECT_EQ(refusal("{}"), "\"model\" is missing");
  EXPECT_EQ(refusal(file_of(R"("version":"2.0")")), "version \"2.0\" is not supported");
  for (const char* type : {"Unigram", "WordPiece", "WordLevel"}) {
    EXPECT_EQ(refusal(R"({"model":{"type":")" + std::string(type) + R"("}})"),
              "model: \"" + std::string(type) + "\" is not supported");
  }
  EXPECT_EQ(refusal(file_of(R"("normalizer":{"type":"Precompiled"})")), "normalizer: \"Precompiled\" is not supported");
  EXPECT_EQ(refusal(file_of(R"("pre_tokenizer":{"type":"UnicodeScripts"})")),
            "pre_tokenizer: \"UnicodeScripts\" is not supported");
  EXPECT_EQ(refusal(file_of(R"("post_processor":{"type":"Other"})")), "post_processor: \"Other\" is not supported");
  EXPECT_EQ(refusal(file_of(R"("decoder":{"type":"CTC"})")), "decoder: \"CTC\" is not supported");
  for (const char* field :
       {R"("dropout":0.1)", R"("end_of_word_suffix":"</w>")", R"("continuing_subword_prefix":"#")"}) {
    EXPECT_HOLDS(refusal(file_of("", std::string(R"({"vocab":{"a":0},"merges":[],)") + field + "}")),
                 " is not supported");
  }
}

TEST(Tokenizer, NamesInvalidParts) {
  const auto model = [](const std::string& members) { return refusal(file_of("", "{" + members + "}")); };
  EXPECT_EQ(model(R"("vocab":{},"merges":[])"), "the vocabulary is empty");
  EXPECT_EQ(model(R"("vocab":{"a":0,"b":0},"merges":[])"), "model: \"a\" and \"b\" have the same id 0");
  EXPECT_EQ(model(R"("vocab":{"a":4194304},"merges":[])"),
            "model: the id of \"a\" is not an integer from 0 to 4194303");
  EXPECT_EQ(model(R"("vocab":{"a":-1},"merges":[])"), "model: the id of \"a\" is not an integer from 0 to 4194303");
  EXPECT_EQ(model(R"("vocab":{"a":0},"merges":["a"])"), "model: merge 0 is not two entries separated by a space");
  EXPECT_EQ(model(R"("vocab":{"a":0},"merges":[["a"]])"), "model: merge 0 is not a pair of entries");
  EXPECT_EQ(model(R"("vocab":{"a":0},"merges":["a z"])"), "model: merge 0 needs \"z\", which is not in the vocabulary");
  EXPECT_EQ(model(R"("vocab":{"a":0},"merges":["a a"])"),
            "model: merge 0 needs \"aa\", which is not in the vocabulary");
  EXPECT_EQ(refusal(file_of(R"("added_tokens":[)" + added("x", 9) + "]")),
            "added_tokens: \"x\" has id 9, but its id by the vocabulary is 6");
  EXPECT_EQ(refusal(file_of(R"("added_tokens":[)" + added("a", 9) + "]")),
            "added_tokens: \"a\" has id 9, but its id by the vocabulary is 0");
  EXPECT_EQ(refusal(file_of(R"("added_tokens":[)" + added("x", 6) + "," + added("x", 6) + "]")),
            "added_tokens: \"x\" occurs twice");
  EXPECT_EQ(refusal(file_of(R"("post_processor":{"type":"BertProcessing","cls":["c",1],"sep":["s",77]})")),
            "post_processor: id 77 is not in the vocabulary");
  EXPECT_EQ(refusal(file_of(R"("post_processor":{"type":"TemplateProcessing","single":[],"special_tokens":{}})")),
            "post_processor: a template must contain the text exactly once");
  std::string many = R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"})";
  for (int i = 0; i < 64; ++i) many += R"(,{"type":"NFC"})";
  EXPECT_EQ(refusal(file_of(many + "]}")), "normalizer: more than 64 parts");
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += R"({"type":"Sequence","normalizers":[)";
  EXPECT_HOLDS(refusal(file_of("\"normalizer\":" + deep)), "line 1 column");
}

TEST(Tokenizer, NamesAMissingUnknownTokenWhenNeeded) {
  const Tokenizer t = tokenizer_of(file_of("", R"({"unk_token":"?","vocab":{"a":0},"merges":[]})"));
  EXPECT_EQ(encode(t, "aa"), (Ids{0, 0}));
  EXPECT_HOLDS(error_of([&] { encode(t, "ab"); }), R"("unk_token" "?" is needed and not in the vocabulary)");
}

TEST(Tokenizer, BoundsWhatReplacementsMakeOfAText) {
  const std::string ten = R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"})";
  std::string steps = ten;
  for (int i = 1; i < 12; ++i) steps += "," + ten;
  const auto sequence = [&](const char* part) {
    return tokenizer_of(file_of("\"" + std::string(part) + R"(":{"type":"Sequence","normalizers":[)" + steps +
                                R"(],"decoders":[)" + steps + "]}"));
  };
  const std::string reason = "Replace makes a text more than 256 times as long";
  EXPECT_HOLDS(error_of([&] { encode(sequence("normalizer"), "aaaaa"); }), reason);
  EXPECT_HOLDS(error_of([&] { (void)sequence("decoder").decode(Ids{0, 0}, false); }), reason);
}

TEST(Tokenizer, RefusesTextOnWhichAnExpressionTakesTooManySteps) {
  const Tokenizer t = tokenizer_of(file_of(pre_tokenizer("(?:a+)+[bc]")));
  EXPECT_EQ(encode(t, "aab"), (Ids{0, 4}));
  EXPECT_HOLDS(error_of([&] { encode(t, std::string(5000, 'a')); }),
               "pre_tokenizer: \"Split\": too many steps on this text");
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const Tokenizer t = tokenizer_of(file_of(""));
  EXPECT_EQ(error_of([&] { encode(t, "ab\xFF"); }), "text: byte 2 is not UTF-8");
}

TEST(Tokenizer, DividesTextWhereNoTokenCanSpan) {
  const std::string text = "ab cab abc ab";
  EXPECT_EQ(tokenizer_of(file_of("")).division(text), 10U);
  EXPECT_EQ(tokenizer_of(file_of("")).division("ab\nbc"), 3U);
  EXPECT_EQ(tokenizer_of(file_of("")).division("abcabc"), std::nullopt);
  const auto with = [&](const std::string& content) {
    return tokenizer_of(file_of(R"("added_tokens":[)" + added(content, 6) + "]")).division(text);
  };
  EXPECT_EQ(with("<s>"), 10U);
  EXPECT_EQ(with("c a"), std::nullopt) << "the token could span the division";
  EXPECT_EQ(tokenizer_of(file_of(pre_tokenizer("(?<=b) "))).division(text), std::nullopt)
      << "the expression looks behind";
  EXPECT_EQ(
      tokenizer_of(file_of(R"("normalizer":{"type":"Strip","strip_left":true,"strip_right":true})")).division(text),
      std::nullopt);
}

TEST(Tokenizer, RefusesAPartWhoseEndIsCrossedByAMerge) {
  // "c a" is one piece, and the model has a merge of "c" and " ".
  const char* model = R"({"vocab":{"a":0,"c":1," ":2,"c ":3},"merges":["c  "]})";
  EXPECT_HOLDS(refusal(file_of("", model)), "merge 0 is not two entries");
  const Tokenizer t = tokenizer_of(file_of("", R"({"vocab":{"a":0,"c":1," ":2,"c ":3},"merges":[["c"," "]]})"));
  Encoder encoder(t);
  Ids ids = {7};
  EXPECT_FALSE(encoder.encode_part("ac a", 2, {true, false}, true, ids));
  EXPECT_EQ(ids, Ids{7});
  EXPECT_TRUE(encoder.encode_part("aa a", 2, {true, false}, true, ids));
  EXPECT_EQ(ids, (Ids{7, 0, 0}));
}

}  // namespace
}  // namespace fp8::token
