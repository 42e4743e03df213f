// Templates, special tokens, masks, truncation and packing.
#include <gtest/gtest.h>

#include "chat_files.h"
#include "fp8/chat/pack.h"

namespace fp8::chat {
namespace {

using test::error_of;
using Ids = std::vector<std::uint32_t>;
using Spans = std::vector<std::pair<std::size_t, std::size_t>>;

constexpr const char* kForm =
    R"({"begin":["{bos}"],"system":"{content}.","prompt":["{{{system}{user}}}"],"answer":["{answer}","{eos}"]})";

// Letters a to e, dot, braces; ids 10 and 11 begin and end.
constexpr const char* kTokenizer =
    R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"d":3,"e":4,".":5,"{":6,"}":7,"|":8,"ab":9},"merges":[]},
  "added_tokens":[{"id":10,"content":"<s>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false},
                  {"id":11,"content":"</s>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}],
  "normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null})";

class Chat : public test::FolderTest {
 protected:
  token::Tokenizer tokenizer(std::string_view config) {
    write("tokenizer.json", kTokenizer);
    if (!config.empty()) write("tokenizer_config.json", config);
    return token::Tokenizer(path());
  }
  static Template form(std::string_view text) { return parse_template(json::parse(text, "form"), "form"); }
  std::string refusal(std::string_view text) {
    return error_of([&] { form(text); });
  }
};

TEST_F(Chat, pieces_are_joined_with_the_system_prompt_in_the_first_turn) {
  const token::Tokenizer t = tokenizer(R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"pad_token":null})");
  const Renderer renderer(form(kForm), t);
  token::Encoder encoder(t);
  std::vector<Pair> pairs = renderer.render({"d", {{"a", "b"}, {"c", ""}}}, encoder);
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_EQ(pairs[0].prompt, (Ids{10, 6, 3, 5, 0, 7}));
  EXPECT_EQ(pairs[0].answer, (Ids{1, 11}));
  EXPECT_EQ(pairs[1].prompt, (Ids{6, 2, 7}));
  EXPECT_EQ(pairs[1].answer, (Ids{11}));
  EXPECT_EQ(renderer.padding(), 11U) << "the end of sequence pads";
  pairs = renderer.render({"", {{"a", "b"}}}, encoder);
  EXPECT_EQ(pairs[0].prompt, (Ids{10, 6, 0, 7})) << "an empty system prompt is none";
}

TEST_F(Chat, special_tokens_that_are_missing) {
  const std::string none = error_of([&] { Renderer(form(kForm), tokenizer("")); });
  EXPECT_EQ(none, path() + "/tokenizer_config.json: no bos_token, but the template needs it (form)");
  EXPECT_HOLDS(error_of([&] { Renderer(form(kForm), tokenizer(R"({"bos_token":"<s>","eos_token":null})")); }),
               ": no eos_token, but");
  EXPECT_HOLDS(error_of([&] { Renderer(form(kForm), tokenizer(R"({"bos_token":"<x>"})")); }),
               ": bos_token <x> is not a token of ");
  EXPECT_HOLDS(error_of([&] { Renderer(form(kForm), tokenizer(R"({"bos_token":7})")); }),
               R"(tokenizer_config.json: "bos_token": not a string)");
  EXPECT_HOLDS(error_of([&] { Renderer(form(kForm), tokenizer("[]")); }), "tokenizer_config.json: not an object");
  const token::Tokenizer t = tokenizer(R"({"bos_token":"<s>","eos_token":"</s>","pad_token":"a"})");
  EXPECT_EQ(Renderer(form(kForm), t).padding(), 0U);
  const std::string plain = R"({"begin":[],"prompt":["{user}"],"answer":["{answer}"])";
  EXPECT_EQ(Renderer(form(plain + R"(,"eos":"<s>"})"), tokenizer(R"({"eos_token":"</s>"})")).padding(), 10U);
  EXPECT_HOLDS(error_of([&] { Renderer(form(plain + "}"), tokenizer("{}")).padding(); }), ": no eos_token");
  EXPECT_HOLDS(error_of([&] { Renderer(form(plain + R"(,"tokens":["<|im_end|>"]})"), t); }),
               "tokenizer.json: <|im_end|> is not a token of it, but the template needs it (form)");
  EXPECT_HOLDS(error_of([&] { Renderer(form(plain + R"(,"eos":"nope"})"), t); }),
               R"(form: "eos": nope is not a token of )");
  token::Encoder encoder(t);
  EXPECT_EQ(error_of([&] {
              Renderer(form(plain + "}"), t).render({"s", {{"a", "b"}}}, encoder);
            }),
            "the template has no place for a system prompt");
}

TEST_F(Chat, whether_an_answer_ends_with_a_special_token) {
  const token::Tokenizer t = tokenizer(R"({"bos_token":"<s>","eos_token":"</s>"})");
  EXPECT_TRUE(Renderer(form(kForm), t).marks_end());
  const auto marks = [&](const char* answer) {
    return Renderer(form(R"({"begin":[],"prompt":["{user}"],"answer":[)" + std::string(answer) + "]}"), t).marks_end();
  };
  EXPECT_FALSE(marks(R"("{answer}")"));
  EXPECT_TRUE(marks(R"("{answer}</s>")"));
  EXPECT_TRUE(marks(R"("{answer}", "{eos}")"));
}

TEST_F(Chat, templates_that_are_refused) {
  EXPECT_EQ(refusal("[]"), "form: not an object");
  EXPECT_EQ(refusal(R"({"prompts":[]})"), R"(form: "prompts" is not a key of a template)");
  EXPECT_EQ(refusal(R"({"begin":[],"answer":["{answer}"]})"), R"(form: "prompt" is missing)");
  const auto with = [&](const std::string& members) {
    return refusal(R"({"begin":[],"prompt":["{user}"],"answer":["{answer}"],)" + members + "}");
  };
  EXPECT_EQ(refusal(R"({"begin":[],"prompt":[],"answer":["{answer}"]})"), "form: prompt: {user} must be there once");
  EXPECT_EQ(refusal(R"({"begin":[],"prompt":["{user}{user}"],"answer":["{answer}"]})"),
            "form: prompt: {user} must be there once");
  EXPECT_EQ(refusal(R"({"begin":[],"prompt":["{user}"],"answer":["x"]})"), "form: answer: {answer} must be there once");
  EXPECT_EQ(refusal(R"({"begin":[],"prompt":["{answer}"],"answer":["x"]})"),
            "form: prompt: {answer} has no meaning here");
  EXPECT_EQ(refusal(R"({"begin":["x{bos}"],"prompt":["{user}"],"answer":["x"]})"),
            "form: begin: {bos} has no meaning here");
  EXPECT_EQ(refusal(R"({"begin":["{"],"prompt":["{user}"],"answer":["x"]})"),
            "form: begin: a brace stands alone (write {{ or }} for one in the text)");
  EXPECT_HOLDS(refusal(R"({"begin":["}"],"prompt":["{user}"],"answer":["x"]})"), "a brace stands alone");
  EXPECT_EQ(with(R"("system":"x")"), "form: {system} must be there once, in begin or in prompt");
  EXPECT_EQ(with(R"("default_system":"x")"), R"(form: default_system needs "system")");
  EXPECT_EQ(with(R"("tokens":[1])"), "form: tokens: not a string");
  EXPECT_EQ(with(R"("eos":1)"), R"(form: "eos": expected a string, found integer)");
  EXPECT_EQ(refusal(R"({"begin":["{system}"],"prompt":["{user}"],"answer":["{answer}"]})"),
            R"(form: {system} needs "system", the form of a system prompt)");
  EXPECT_EQ(refusal(R"({"system":"x","begin":["{system}"],"prompt":["{user}"],"answer":["{answer}"]})"),
            "form: system: {content} must be there once");
  ASSERT_EQ(::setenv("FP8_SHARE", "share", 1), 0);
  EXPECT_EQ(error_of([] { read_template("llama9"); }),
            "llama9: neither a file nor a template (chatml, llama2, llama3, mistral, qwen)");
  EXPECT_EQ(read_template("chatml").tokens.size(), 2U);
}

TEST_F(Chat, room_is_divided_as_the_reference_does) {
  const auto kept = [](std::size_t prompt, std::size_t answer, std::size_t room) {
    const PairLengths k = truncate_pair(prompt, answer, room);
    return std::pair(k.prompt, k.answer);
  };
  EXPECT_EQ(kept(10, 5, 100), std::pair(10UL, 5UL));
  EXPECT_EQ(kept(100, 5, 50), std::pair(45UL, 5UL)) << "a short answer is kept whole";
  EXPECT_EQ(kept(5, 100, 50), std::pair(5UL, 45UL)) << "a short prompt is kept whole";
  EXPECT_EQ(kept(100, 100, 51), std::pair(26UL, 25UL)) << "both are cut in proportion";
  EXPECT_EQ(kept(300, 100, 100), std::pair(75UL, 25UL));
  EXPECT_EQ(kept(0, 0, 1), std::pair(0UL, 0UL));
  EXPECT_EQ(kept(3, 7, 1), std::pair(1UL, 0UL)) << "a pair may be left with no answer";
  EXPECT_EQ(kept(50, 50, 100), std::pair(50UL, 50UL));
}

TEST_F(Chat, masks_and_cutoffs) {
  const std::vector<Pair> pairs = {{{1, 2, 3}, {4, 5}}, {{6, 7, 8}, {9, 10}}};
  const auto spans = [&](Mask mask, std::optional<std::size_t> cutoff = {}) {
    return spans_of(assemble(pairs, mask, cutoff).mask);
  };
  EXPECT_EQ(spans(Mask::assistant), (Spans{{3, 5}, {8, 10}}));
  EXPECT_EQ(spans(Mask::last), (Spans{{8, 10}}));
  EXPECT_EQ(spans(Mask::all), (Spans{{0, 10}}));
  const Document front = assemble(pairs, Mask::assistant, 6);
  EXPECT_EQ(front.ids, (Ids{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(front.whole, 10U);
  EXPECT_EQ(assemble(pairs, Mask::last, 6).ids, (Ids{1, 6, 7, 8, 9, 10})) << "the last answer is kept";
  EXPECT_EQ(spans(Mask::last, 6), (Spans{{4, 6}}));
  EXPECT_EQ(assemble(pairs, Mask::all, 1000000000000).ids.size(), 10U);
  EXPECT_TRUE(assemble({}, Mask::all, 5).ids.empty());
  const std::vector<Pair> silent{{.prompt = {1}, .answer = {2}, .prompt_counts = true, .answer_counts = false},
                                 {.prompt = {3}, .answer = {4}, .prompt_counts = false, .answer_counts = true}};
  EXPECT_EQ(assemble(silent, Mask::assistant, {}).mask, (std::vector<std::uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(assemble(silent, Mask::all, {}).mask, (std::vector<std::uint8_t>{1, 0, 0, 1}));
}

Document document(std::size_t length, std::uint32_t id) {
  return {Ids(length, id), std::vector<std::uint8_t>(length, 1), length};
}

TEST_F(Chat, packing_takes_the_longest_that_fits) {
  std::vector<Row> rows;
  Packer packer(10, 99, [&](Row row) { rows.push_back(std::move(row)); });
  std::uint32_t id = 0;
  for (const std::size_t length : {3, 6, 3, 9, 1}) packer.add(document(length, id++));
  packer.finish();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].ids, (Ids{3, 3, 3, 3, 3, 3, 3, 3, 3, 99}));
  EXPECT_EQ(rows[1].ids, (Ids{1, 1, 1, 1, 1, 1, 2, 2, 2, 99})) << "of equal lengths the later one first";
  EXPECT_EQ(rows[2].ids, (Ids{0, 0, 0, 4, 99, 99, 99, 99, 99, 99}));
  EXPECT_EQ(rows[2].lengths, (std::vector<std::size_t>{3, 1}));
  EXPECT_EQ(rows[2].padding, 6U);
  EXPECT_EQ(spans_of(rows[2].mask), (Spans{{1, 3}})) << "the first token of a document is no target";
  EXPECT_HOLDS(error_of([&] { packer.add(document(10, 0)); }), "wrong length");
  EXPECT_HOLDS(error_of([&] { packer.add(document(0, 0)); }), "wrong length");
  EXPECT_HOLDS(error_of([] { Packer(1, 0, {}); }), "packed sequences need at least 2 tokens");
}

TEST_F(Chat, packing_works_in_groups_of_1000_records) {
  std::size_t rows = 0;
  Packer packer(3, 0, [&](const Row&) { ++rows; });
  for (int i = 0; i < 998; ++i) packer.skip();
  packer.add(document(1, 1));
  EXPECT_EQ(rows, 0U);
  packer.add(document(1, 1));
  EXPECT_EQ(rows, 1U) << "the group is full";
  packer.add(document(1, 1));
  packer.finish();
  EXPECT_EQ(rows, 2U) << "documents of different groups are not packed together";
}

}  // namespace
}  // namespace fp8::chat
