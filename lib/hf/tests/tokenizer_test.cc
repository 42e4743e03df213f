// Identity of a tokenizer.json: equal for equal vocabularies in any form, different for others.
#include "fp8/hf/tokenizer.h"

#include <gtest/gtest.h>

#include "fp8/base/digest.h"
#include "fp8_test.h"

namespace fp8::hf {
namespace {

using test::error_of;

constexpr const char* kSample = R"({"version": "1.0", "added_tokens": [
  {"id": 4, "content": "<s>", "special": true, "lstrip": false}, {"id": 5, "content": "\u00e9"}],
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "abb": 3}, "merges": ["a b", "ab b"]}})";

TokenizerIdentity of(const std::string& text) { return parse_tokenizer_identity(text, "t"); }
std::string tokenizer_refusal(const std::string& text) {
  return error_of([&] { of(text); });
}
std::string with_model(const std::string& model) { return R"({"model": )" + model + "}"; }

// Digested form of a number, and of a text.
std::string n(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFFU);
  return bytes;
}
std::string t(const std::string& text) { return n(text.size()) + text; }

TEST(TokenizerIdentity, is_the_digest_of_the_form_in_the_header) {
  const std::string form = "fp8-tokenizer 1\n" + n(4) + n(0) + t("a") + n(1) + t("b") + n(2) + t("ab") + n(3) +
                           t("abb") + n(2) + t("a") + t("b") + t("ab") + t("b") + n(2) + n(4) + t("<s>") + n(1) + n(5) +
                           t("\xC3\xA9") + n(0);
  EXPECT_EQ(of(kSample).digest, digest_of(std::as_bytes(std::span(form))).hex());
  EXPECT_EQ(of(kSample).vocab_size, 6);
}

TEST(TokenizerIdentity, does_not_depend_on_formatting) {
  const std::string same =
      R"({"model":{"merges":[["a","b"],["ab","b"]],"vocab":{"abb":3,"ab":2,"b":1,"a":0},"ignore_merges":true},)"
      R"("normalizer":null,"added_tokens":[{"special":false,"content":"é","id":5},{"special":true,"content":"<s>","id":4}]})";
  EXPECT_EQ(of(same).digest, of(kSample).digest);
}

TEST(TokenizerIdentity, differs_where_ids_would) {
  const std::string sample = kSample;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = sample;
    text.replace(text.find(from), from.size(), to);
    return of(text).digest;
  };
  const std::string digest = of(sample).digest;
  EXPECT_NE(with("\"abb\": 3", "\"aba\": 3"), digest);
  EXPECT_NE(with("\"a\": 0, \"b\": 1", "\"a\": 1, \"b\": 0"), digest);
  EXPECT_NE(with("\"a b\", \"ab b\"", "\"ab b\", \"a b\""), digest);
  EXPECT_NE(with("\"a b\", ", ""), digest);
  EXPECT_NE(with("true", "false"), digest);
  EXPECT_NE(with("<s>", "<t>"), digest);
  EXPECT_NE(with("\"id\": 5", "\"id\": 6"), digest);
}

TEST(TokenizerIdentity, notes_what_does_not_change_ids) {
  const auto with = [](const std::string& members) { return of("{" + members + R"(, "model":{"vocab":{"a":0}}})"); };
  EXPECT_EQ(with(R"("truncation": null, "padding": null)").note, "");
  EXPECT_EQ(with(R"("truncation": {"max_length": 8}, "padding": {})").note,
            "truncation and padding of tokenizer.json: ignored; no tool cuts or pads texts by it");
  EXPECT_EQ(with(R"("padding": {})").digest, with(R"("padding": null)").digest);
}

TEST(TokenizerIdentity, refuses_other_json) {
  EXPECT_EQ(tokenizer_refusal("[]"), "t: not a tokenizer.json: not an object");
  EXPECT_NE(tokenizer_refusal("{"), "no error");
  EXPECT_NE(tokenizer_refusal("{}").find("t: "), std::string::npos);
  EXPECT_NE(tokenizer_refusal(with_model("[]")).find("\"model\""), std::string::npos);
  EXPECT_NE(tokenizer_refusal(with_model("{}")).find("\"vocab\""), std::string::npos);
  EXPECT_EQ(tokenizer_refusal(with_model(R"({"vocab":{}})")), "t: model.vocab: is empty");
  EXPECT_EQ(tokenizer_refusal(with_model(R"({"type":"Unigram","vocab":[]})")),
            "t: model: \"Unigram\" is not supported (BPE is)");
  const std::string bad_id = "an id is not an integer from 0 to 2147483646";
  for (const char* id : {"-1", "2147483647", "18446744073709551615", "1.0", "\"1\"", "null"}) {
    EXPECT_EQ(tokenizer_refusal(with_model(R"({"vocab":{"a":)" + std::string(id) + "}}")), "t: model.vocab: " + bad_id);
  }
  EXPECT_NE(tokenizer_refusal(with_model(R"({"vocab":[["a",0.5]]})")).find("\"vocab\""), std::string::npos);
  for (const char* merge : {"\"ab\"", "\"a b c\"", "\" b\"", "\"a \"", "[\"a\"]", "[\"a\",1]", "3", "[\"a\",\"\"]"}) {
    EXPECT_EQ(tokenizer_refusal(with_model(R"({"vocab":{"a":0},"merges":["a b",)" + std::string(merge) + "]}")),
              "t: model.merges: merge 1 is not two tokens");
  }
  const auto added = [](const std::string& token) {
    return tokenizer_refusal(R"({"model":{"vocab":{"a":0}},"added_tokens":[)" + token + "]}");
  };
  EXPECT_EQ(added("1"), "t: added_tokens: one is not an object");
  EXPECT_EQ(added(R"({"content":"x"})"), "t: added_tokens: " + bad_id);
  EXPECT_NE(added(R"({"id":1})").find("t: added_tokens: \"content\""), std::string::npos);
  EXPECT_NE(added(R"({"id":1,"content":"x","special":1})").find("\"special\""), std::string::npos);
  EXPECT_EQ(tokenizer_refusal(R"({"model":{"vocab":{"a":0},"merges":null},"added_tokens":null})"), "no error");
}

}  // namespace
}  // namespace fp8::hf
