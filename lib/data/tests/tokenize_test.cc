// Tokenizing: each kind of input, how kinds are told apart, and what is refused.
#include "fp8/data/tokenize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "fp8_test.h"

namespace fp8::data {
namespace {

using test::error_of;
using Ids = std::vector<std::int32_t>;

template <class T>
std::string raw(const std::vector<T>& values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t count, const std::string& data) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return raw(header) + data;
}

// What a run makes: ids and where documents begin.
struct Made {
  Ids ids;
  Ids documents;
  TokenInfo info;
};

class Tokenize : public test::FolderTest {
 protected:
  Made make(std::vector<std::string> inputs, TokenizeOptions options = {}) {
    options.inputs = std::move(inputs);
    options.output = at("out.h5");
    options.force = true;
    Made made;
    made.info = tokenize(options);
    const TokenFile file(options.output, true);
    made.ids.resize(static_cast<std::size_t>(file.info().tokens));
    file.read(0, made.ids);
    for (std::int64_t i = 0; i <= file.info().documents; ++i) {
      made.documents.push_back(static_cast<std::int32_t>(file.document(i)));
    }
    EXPECT_EQ(made.info.tokens, file.info().tokens);
    EXPECT_EQ(made.info.documents, file.info().documents);
    return made;
  }
  std::string refusal(std::vector<std::string> inputs, TokenizeOptions options = {}) {
    options.inputs = std::move(inputs);
    options.output = at("refused.h5");
    const std::vector<std::string> before = names();
    std::string message = error_of([&] { tokenize(options); });
    EXPECT_EQ(names(), before) << "something was left behind";
    return message;
  }
};

TEST_F(Tokenize, text_is_its_bytes) {
  std::string bytes;
  for (int i = 0; i < 300000; ++i) bytes += static_cast<char>(i * 31 % 257);
  const Made made = make({write("a.txt", bytes), write("empty", ""), write("b", "\xff\n")});
  ASSERT_EQ(made.ids.size(), 300002U);
  for (std::size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(made.ids[i], static_cast<unsigned char>(bytes[i]));
  EXPECT_EQ(made.ids[300000], 255);
  EXPECT_EQ(made.documents, (Ids{0, 300000, 300002}));
  EXPECT_EQ(made.info.vocab_size, 256);
}

TEST_F(Tokenize, jsonl_records_are_documents) {
  const Made made = make({write("x.jsonl", "{\"text\":\"ab\",\"id\":1}\n\n{\"text\":\"\"}\n{\"text\":\"\\u00e9\"}")});
  EXPECT_EQ(made.ids, (Ids{'a', 'b', 0xc3, 0xa9}));
  EXPECT_EQ(made.documents, (Ids{0, 2, 4}));
}

TEST_F(Tokenize, eos_ends_documents) {
  const std::string file = write("x.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\"}\n{\"text\":\"b\"}\n");
  Made made = make({file}, {.vocab_size = 257, .eos = 256});
  EXPECT_EQ(made.ids, (Ids{'a', 256, 'b', 256}));
  EXPECT_EQ(made.documents, (Ids{0, 2, 4}));
  made = make({write("x.u16", raw<std::uint16_t>({1, 9, 9, 2, 3}))}, {.vocab_size = 10, .eos = 9});
  EXPECT_EQ(made.ids, (Ids{1, 9, 9, 2, 3}));
  EXPECT_EQ(made.documents, (Ids{0, 2, 3, 5}));
}

TEST_F(Tokenize, raw_ids) {
  std::vector<std::uint16_t> many(200000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::uint16_t>(i % 50000);
  EXPECT_EQ(make({write("a.u16", raw(many))}, {.vocab_size = 50000}).ids, Ids(many.begin(), many.end()));
  const Made made = make({write("a", raw<std::uint32_t>({0, 70000}))}, {.from = Source::u32, .vocab_size = 70001});
  EXPECT_EQ(made.ids, (Ids{0, 70000}));
}

TEST_F(Tokenize, llmc_is_recognized_by_its_magic_number) {
  Made made = make({write("a.bin", llmc(20240520, 1, 3, raw<std::uint16_t>({5, 50256, 7})))}, {.vocab_size = 50257});
  EXPECT_EQ(made.ids, (Ids{5, 50256, 7}));
  made = make({write("b", llmc(20240801, 7, 2, raw<std::uint32_t>({128255, 7})))}, {.vocab_size = 128256});
  EXPECT_EQ(made.ids, (Ids{128255, 7}));
}

TEST_F(Tokenize, llmc_headers_are_checked) {
  const TokenizeOptions llm{.from = Source::llmc, .vocab_size = 10};
  const auto says = [&](const std::string& bytes) { return refusal({write("x", bytes)}, llm); };
  EXPECT_EQ(says("short"), at("x") + ": not an llm.c file: shorter than its header of 1024 bytes");
  EXPECT_EQ(says(llmc(7, 1, 0, "")), at("x") + ": not an llm.c file: it begins with 7, not with 20240520 or 20240801");
  EXPECT_EQ(says(llmc(20240520, 2, 0, "")), at("x") + ": llm.c version 2 is not known (1 and 7 are)");
  EXPECT_EQ(says(llmc(20240520, 1, 3, "abcd")), at("x") + ": its header says 3 tokens of 2 bytes, but 4 bytes follow");
  EXPECT_EQ(says(llmc(20240520, 1, -2, "")), at("x") + ": its header says -2 tokens of 2 bytes, but 0 bytes follow");
  EXPECT_EQ(says(llmc(20240520, 1, 0, "")), at("x") + ": holds no tokens");
}

TEST_F(Tokenize, ids_beyond_the_vocabulary_are_named_by_position) {
  const std::string file = write("a.u16", raw<std::uint16_t>({1, 2, 300}));
  EXPECT_EQ(refusal({file}, {.vocab_size = 256}),
            file + ": token 2 is 300, not below the vocabulary size 256 (--vocab-size)");
  EXPECT_EQ(refusal({write("t", "ab\x80")}, {.vocab_size = 128}),
            at("t") + ": token 2 is 128, not below the vocabulary size 128 (--vocab-size)");
  EXPECT_EQ(refusal({file}), "--vocab-size: needed for the ids in " + file);
}

TEST_F(Tokenize, refuses_what_is_not_as_promised) {
  EXPECT_EQ(refusal({write("odd.u16", "abc")}, {.vocab_size = 65536}),
            at("odd.u16") + ": its size is not a multiple of 2 bytes");
  EXPECT_EQ(refusal({write("odd.u32", "abcde")}, {.vocab_size = kMaxVocabSize}),
            at("odd.u32") + ": its size is not a multiple of 4 bytes");
  EXPECT_NE(refusal({write("a.jsonl", "{\"text\":1}\n")}).find("a.jsonl: line 1"), std::string::npos);
  EXPECT_NE(refusal({write("b.jsonl", "{\"text\":\"a\"}\n[]\n")}).find("b.jsonl: line 2: not an object"),
            std::string::npos);
  EXPECT_NE(refusal({write("c.jsonl", "{\"prompt\":\"a\"}\n")}).find("\"text\""), std::string::npos);
  EXPECT_NE(refusal({write("d.jsonl", "{\"text\":\"a\"\n")}).find("d.jsonl: line "), std::string::npos);
  EXPECT_NE(refusal({write("nano.bin", "abcd")}).find("say what it holds"), std::string::npos);
  EXPECT_NE(refusal({write("list.json", "[]")}).find("say what it holds"), std::string::npos);
  EXPECT_NE(refusal({at("none")}).find("none"), std::string::npos);
  EXPECT_NE(refusal({at(".")}).find("is a folder"), std::string::npos);
  EXPECT_EQ(refusal({write("e", "")}), at("e") + ": holds no tokens");
  EXPECT_EQ(refusal({at("e"), at("e")}), "the inputs hold no tokens");
  EXPECT_EQ(refusal({}), "no input");
  EXPECT_NE(refusal({"-"}, {.from = Source::u16, .vocab_size = 9}).find("standard input: only text"),
            std::string::npos);
  EXPECT_EQ(refusal({"-", "-"}), "standard input: can be read only once");
  EXPECT_NE(refusal({at("e")}, {.vocab_size = 0}).find("--vocab-size: 0"), std::string::npos);
  EXPECT_NE(refusal({at("e")}, {.eos = 256}).find("--eos: 256 is not below the vocabulary size 256"),
            std::string::npos);
}

TEST_F(Tokenize, an_output_that_is_an_input_is_refused) {
  const std::string file = write("same", "abc");
  EXPECT_EQ(error_of([&] { tokenize({.inputs = {file}, .output = file, .force = true}); }),
            file + ": is also an input");
}

TEST_F(Tokenize, a_dry_run_counts_and_writes_nothing) {
  const std::string file = write("x.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n");
  const TokenInfo info = tokenize({.inputs = {file}, .output = at("dry.h5"), .dry_run = true});
  EXPECT_EQ(info.tokens, 3);
  EXPECT_EQ(info.documents, 2);
  EXPECT_FALSE(std::filesystem::exists(at("dry.h5")));
  EXPECT_NE(error_of([&] { tokenize({.inputs = {file}, .output = file + "/x", .dry_run = true}); }).find("cannot"),
            std::string::npos);
}

TEST_F(Tokenize, reports_progress) {
  std::vector<std::int64_t> seen;
  const auto progress = [&](std::int64_t n) { seen.push_back(n); };
  make({write("big", std::string(std::size_t{9} << 20, 'x'))}, {.progress = progress});
  EXPECT_EQ(seen.size(), 2U);
}

TEST(TokenizeSource, names) {
  EXPECT_EQ(parse_source("auto"), Source::automatic);
  EXPECT_EQ(parse_source("llmc"), Source::llmc);
  EXPECT_FALSE(parse_source("megatron"));
}

}  // namespace
}  // namespace fp8::data
