// Prompts: lists of ids, records, conversations up to where the answer begins.
#include "fp8/generate/prompt.h"

#include <gtest/gtest.h>

#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::generate {
namespace {

TEST(Prompts, ListsOfIds) {
  EXPECT_EQ(parse_ids("5,6,70000"), (Ids{5, 6, 70000}));
  for (const char* bad : {"", "5,", ",5", "5 6", "-1", "5,x", "1e3", "99999999999"})
    EXPECT_NE(test::error_of([&] { (void)parse_ids(bad); }).find("is not a token id"), std::string::npos) << bad;
}

TEST(Prompts, RecordsOfTextAndIds) {
  const Codec bytes;
  const PromptReader reader(&bytes, std::nullopt);
  const auto of = [&](const char* record) { return reader.of_record(json::parse(record, "record")); };
  EXPECT_EQ(of(R"({"text":"ab"})"), (Ids{97, 98}));
  EXPECT_EQ(of(R"({"ids":[1,2],"other":null})"), (Ids{1, 2}));
  for (const auto& [record, reason] :
       {std::pair{"[]", "the record is not an object"},
        {R"({"text":1})", "\"text\" is not a string"},
        {R"({"ids":1})", "\"ids\" is not a list"},
        {R"({"ids":[-1]})", "an entry of \"ids\" is not a token id"},
        {R"({"instruction":"a"})", "the record has none of"},
        {R"({"text":"a","ids":[1]})", "the record has both \"text\" and \"ids\", of"},
        {R"({"ids":[1],"messages":[]})", "the record has both \"messages\" and \"ids\""},
        {R"({"conversations":[],"text":"a"})", "the record has both \"conversations\" and"},
        {R"({"messages":[]})", "the record is a conversation"}})
    EXPECT_TRUE(test::error_of([&, text = record] { of(text); }).starts_with(reason)) << record;
  EXPECT_TRUE(
      test::error_of([&] { PromptReader(nullptr, std::nullopt).of_text("a"); }).starts_with("the checkpoint has no"));
  EXPECT_NE(test::error_of([&] { PromptReader(&bytes, chat::read_template("chatml")); }).find("needs a tokenizer.json"),
            std::string::npos);
}

TEST(Prompts, ConversationsEndWhereTheAnswerBegins) {
  const Codec codec(token::Tokenizer("tests/golden/chat/llama3"));
  const PromptReader reader(&codec, chat::read_template("llama3"));
  const auto text_of = [&](const Ids& ids) { return codec.tokenizer()->decode(ids, false); };
  const std::string want =
      "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_"
      "header_id|>\n\n";
  EXPECT_EQ(text_of(reader.of_text("hi")), want);
  const auto of = [&](const char* record) { return reader.of_record(json::parse(record, "record")); };
  EXPECT_EQ(text_of(of(R"({"messages":[{"role":"user","content":"hi"}]})")), want);
  EXPECT_EQ(text_of(of(R"({"conversations":[{"from":"human","value":"hi"}]})")), want);
  EXPECT_TRUE(text_of(of(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},
      {"role":"user","content":"hi"}]})"))
                  .ends_with("b<|eot_id|>" + want.substr(std::string("<|begin_of_text|>").size())));
  EXPECT_EQ(
      test::error_of([&] { of(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})"); }),
      "the last turn is the assistant's: there is nothing to answer");
  try {
    of(R"({"messages":[{"role":"human","content":"a"}]})");
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), "message 1: the role \"human\" is not known (user, assistant and system are)");
    EXPECT_TRUE(e.hints().empty()) << "prompts have no --columns";
  }
  EXPECT_EQ(reader.template_end(), "<|eot_id|>");
}

}  // namespace
}  // namespace fp8::generate
