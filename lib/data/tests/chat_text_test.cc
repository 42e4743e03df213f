// Rows, examples and counts of conversations as text and as JSON.
#include "fp8/data/chat_text.h"

#include <cstdlib>

#include "fp8/data/tokenize.h"
#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::data {
namespace {

TEST(ChatText, ARowIsALineOfJson) {
  std::string out;
  append_row(out, {.ids = {7, 8, 9}, .mask = {0, 1, 1}, .lengths = {2, 1}, .padding = 1}, false);
  append_row(out, {.ids = {7, 8, 9}, .mask = {1, 0, 1}, .lengths = {2, 1}, .padding = 1}, true);
  EXPECT_EQ(out,
            "{\"ids\":[7,8,9],\"trained\":[[1,3]]}\n"
            "{\"ids\":[7,8,9],\"trained\":[[0,1],[2,3]],\"lengths\":[2,1],\"padding\":1}\n");
}

TEST(ChatText, AnExampleShowsWhatCounts) {
  const token::Tokenizer tokenizer("share/tokenizers/shakespeare");
  std::vector<std::uint32_t> ids;
  token::Encoder(tokenizer).encode("to be", false, ids);
  ASSERT_EQ(ids.size(), 2U);
  const chat::Document document{.ids = ids, .mask = {0, 1}};
  const std::string first = std::to_string(ids[0]), second = std::to_string(ids[1]);
  EXPECT_EQ(example_text(document, {"a.jsonl", 3}, tokenizer),
            "a.jsonl: line 3: 2 tokens, 1 of them targets (+)\n- \"to\" [" + first + "]\n+ \" be\" [" + second + "]\n");
  EXPECT_EQ(example_line(document, {"a.jsonl", 3}, tokenizer),
            "{\"type\":\"example\",\"line\":3,\"text\":\"to be\",\"ids\":[" + first + "," + second +
                "],\"trained\":[[1,2]]}\n");
}

TEST(ChatText, CountsNameTheMostFrequentReasons) {
  ChatSummary s{.records = 9, .documents = 1, .sequences = 1, .tokens = 12, .padding = 2, .targets = 5, .cut = 1};
  EXPECT_EQ(counts_text(s, false), "1 document, 12 tokens, 5 targets, 1 cut, 0 left out");
  s.dropped = {{"a", 1}, {"b", 4}, {"c", 2}, {"d", 1}};
  EXPECT_EQ(counts_text(s, true),
            "1 document, 12 tokens, 5 targets, 1 cut, 8 left out (b: 4, c: 2, a: 1, other reasons: 1); packed into 1 "
            "sequences with 2 tokens of padding");
  s.longest = 9;
  s.longest_at = {"a.jsonl", 3};
  s.rendered = 8;
  s.too_long = 2;
  s.whole = 24;
  s.lost = 3;
  s.ignored = {{"x", 1}};
  s.dropped.erase("b");
  EXPECT_EQ(counts_text(s, false),
            "1 document, 12 tokens, 5 targets, 1 cut, 4 left out (c: 2, a: 1, d: 1); longest 9 tokens (a.jsonl: line "
            "3); beyond the cutoff: 25 % of the conversations, 12.5 % of their tokens");
  EXPECT_EQ(
      json::dump(tokens_record("x.h5", s, 256)),
      R"({"type":"tokens","path":"x.h5","tokens":12,"documents":1,"vocab_size":256,"targets":5,"records":9,)"
      R"("cut":1,"dropped":{"a":1,"c":2,"d":1},"sequences":1,"padding":2,"longest":9,"too_long":2,"tokens_lost":3,"ignored":{"x":1}})");
}

TEST(ChatText, EvaluationHasAFileOfItsOwn) { EXPECT_EQ(eval_path("a.b/data.h5"), "a.b/data-eval.h5"); }

TEST(DeclaredTokenizer, IsBytesOrAFile) {
  EXPECT_EQ(declared_tokenizer("bytes").vocab_size, 256);
  const DeclaredTokenizer t = declared_tokenizer("share/tokenizers/shakespeare");
  EXPECT_EQ(t.file, "share/tokenizers/shakespeare/tokenizer.json");
  EXPECT_GT(t.vocab_size, 256);
  EXPECT_FALSE(t.id.empty());
}

TEST(DeclaredTokenizer, HasTheTemplateBesideItsFile) {
  ASSERT_EQ(::setenv("FP8_SHARE", "share", 1), 0);
  const DeclaredTokenizer t = read_tokenizer("examples/3-fine-tune/tokenizer");
  ASSERT_TRUE(t.own_template && t.own_template->equivalent);
  EXPECT_EQ(t.own_template->equivalent->form.name, "chatml");
  EXPECT_FALSE(read_tokenizer("share/tokenizers/shakespeare").own_template);
  EXPECT_FALSE(read_tokenizer("bytes").own_template);
}

TEST(HoldsConversations, IsDecidedByTheFirstRecord) {
  const std::string data = "tests/golden/chat/data/";
  for (const char* name : {"alpaca.json", "sharegpt.jsonl", "openai.jsonl"})
    EXPECT_TRUE(holds_conversations(data + name, Source::automatic, {}, "text")) << name;
  EXPECT_TRUE(holds_conversations(data + "openai.jsonl", Source::jsonl, {}, "text"));
  EXPECT_FALSE(holds_conversations(data + "openai.jsonl", Source::text, {}, "text"));
  EXPECT_FALSE(holds_conversations(data + "openai.jsonl", Source::automatic, {}, "messages")) << "texts are there";
  EXPECT_FALSE(holds_conversations(data + "none.jsonl", Source::automatic, {}, "text"));
  EXPECT_FALSE(holds_conversations("share/text/tinyshakespeare.txt", Source::automatic, {}, "text"));
  EXPECT_FALSE(holds_conversations("-", Source::jsonl, {}, "text"));
}

}  // namespace
}  // namespace fp8::data
