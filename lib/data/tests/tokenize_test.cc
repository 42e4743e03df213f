// Tokenizing: each input format, detection of formats, and errors.
#include "fp8/data/tokenize.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <thread>
#include <vector>

#include "fp8/token/tokenizer.h"
#include "fp8_test.h"

namespace fp8::data {
namespace {

using test::error_of;
using Ids = std::vector<std::int32_t>;

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t count, const std::string& data) {
  std::vector<std::int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return raw(header) + data;
}

// Result of a run: ids and document offsets.
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
    for (const std::int64_t bound : file.documents()) made.documents.push_back(static_cast<std::int32_t>(bound));
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
  const Made made = make({write("a.txt", bytes), write("empty", ""), write("b", "\xff\n")}, {.from = Source::text});
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

TEST_F(Tokenize, elements_of_an_array_are_documents) {
  const std::string array = " [\n{\"text\":\"ab]\\\"\"},\n\n {\"text\":\"\"}, {\"text\":\"c\"}]\n";
  EXPECT_EQ(make({write("x.json", array)}).ids, (Ids{'a', 'b', ']', '"', 'c'}));
  EXPECT_EQ(make({write("x", array)}, {.from = Source::json}).documents, (Ids{0, 4, 5}));
  EXPECT_EQ(refusal({write("y.json", "[{\"text\":\"a\"},\n{\"text\":2}]")}),
            at("y.json") + ": line 2: \"text\": expected a string, found integer");
  EXPECT_EQ(refusal({write("z.json", "[{\"text\":\"a\"},\n{\"text\":\"b\"")}),
            at("z.json") + ": line 2: the JSON array ends in the middle of the record that begins here");
  EXPECT_EQ(make({write("b.jsonl", "{\"body\":\"a\"}")}, {.text_column = "body"}).ids, (Ids{'a'}));
}

TEST_F(Tokenize, the_first_records_of_each_input) {
  write("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\nno record");
  write("b.json", R"([{"text":"c"}])");
  write("c.txt", "text");
  TokenizeOptions options;
  options.max_records = 2;
  EXPECT_EQ(make({at("a.jsonl"), at("b.json")}, options).ids, (Ids{'a', 'b', 'c'}));
  EXPECT_EQ(refusal({at("c.txt")}, options), at("c.txt") + ": has no records of JSON to count");
}

TEST_F(Tokenize, descriptions_of_datasets_are_refused) {
  write("dataset_info.json", R"({"mine":{"file_name":"a.json"}})");
  EXPECT_EQ(refusal({at("dataset_info.json")}),
            at("dataset_info.json") + ": describes datasets of LLaMA-Factory and holds none; fp8-import reads it");
}

TEST_F(Tokenize, records_of_json_are_parsed_by_several_threads_in_order) {
  std::string lines, all;
  for (int i = 0; i < 200000; ++i) {
    lines += "{\"text\":\"" + std::to_string(i) + "\"}\n";
    all += std::to_string(i);
  }
  const Made made = make({write("x.jsonl", lines)});
  EXPECT_EQ(made.ids, Ids(all.begin(), all.end()));
  EXPECT_EQ(made.info.documents, 200000);
  EXPECT_HOLDS(refusal({write("x.jsonl", lines + "[]\n{")}), "x.jsonl: line 200001: not an object");
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
  EXPECT_EQ(says(llmc(20240520, 1, 3, "abcd")),
            at("x") + ": its header states 3 tokens of 2 bytes, but 4 bytes follow");
  EXPECT_EQ(says(llmc(20240520, 1, -2, "")), at("x") + ": its header states -2 tokens of 2 bytes, but 0 bytes follow");
  EXPECT_EQ(says(llmc(20240520, 1, 0, "")), at("x") + ": holds no tokens");
}

// The index of a Megatron dataset.
std::string megatron(std::uint8_t type, const std::vector<std::int32_t>& lengths,
                     const std::vector<std::int64_t>& begins, const std::vector<std::int64_t>& documents) {
  const std::string_view magic("MMIDIDX\0\0", 9);
  return std::string(magic) + raw<std::uint64_t>({1}) + raw<std::uint8_t>({type}) +
         raw<std::uint64_t>({lengths.size(), documents.size()}) + raw(lengths) + raw(begins) + raw(documents);
}

TEST_F(Tokenize, megatron_datasets) {
  write("m.bin", raw<std::uint16_t>({1, 2, 3, 4, 5}));
  const std::string index = write("m.idx", megatron(8, {2, 0, 3}, {0, 4, 4}, {0, 2, 3}));
  for (const char* name : {"m.bin", "m.idx"}) {
    const Made made = make({at(name)}, {.vocab_size = 6});
    EXPECT_EQ(made.ids, (Ids{1, 2, 3, 4, 5})) << name;
    EXPECT_EQ(made.documents, (Ids{0, 2, 5})) << name;
  }
  EXPECT_EQ(make({at("m")}, {.from = Source::megatron, .vocab_size = 6}).ids, (Ids{1, 2, 3, 4, 5}));
  EXPECT_HOLDS(refusal({at("m.bin"), at("m.idx")}, {.vocab_size = 6}), "m.idx: its dataset was already named");
  write("n.bin", raw<std::int64_t>({7, 70000, 9}));
  write("n.idx", megatron(5, {1, 2}, {16, 0}, {0, 1, 2}));
  EXPECT_EQ(make({at("n.bin")}, {.vocab_size = 70001}).ids, (Ids{9, 7, 70000})) << "sequences in the index's order";
}

TEST_F(Tokenize, megatron_indexes_are_checked) {
  write("m.bin", raw<std::int32_t>({1, -2, 3}));
  const auto says = [&](const std::string& bytes) {
    return refusal({write("m.idx", bytes)}, {.from = Source::megatron, .vocab_size = 9}).substr(path().size() + 1);
  };
  EXPECT_EQ(says("MMIDIDX"), "m.idx: not the index of a Megatron dataset: it does not begin with MMIDIDX");
  EXPECT_EQ(says(megatron(7, {1}, {0}, {0, 1})), "m.idx: its type 7 (float) is not one of token ids");
  EXPECT_EQ(says(megatron(4, {1}, {8}, {0, 1}) + "x"),
            "m.idx: its header states 1 sequences and 2 bounds of documents, 62 bytes, but it has 63 (datasets with "
            "modes are not supported)");
  EXPECT_EQ(says(megatron(4, {1}, {12}, {0, 1})), "m.idx: sequence 0, 1 ids at byte 12, is not in " + at("m.bin"));
  EXPECT_EQ(says(megatron(4, {-1}, {0}, {0, 1})), "m.idx: sequence 0, -1 ids at byte 0, is not in " + at("m.bin"));
  EXPECT_EQ(says(megatron(4, {2000000000}, {4}, {0, 1})),
            "m.idx: sequence 0, 2000000000 ids at byte 4, is not in " + at("m.bin"));
  EXPECT_EQ(says(megatron(4, {2}, {0}, {0, 1})), "m.bin: byte 4 holds -2, which is not a token id");
  EXPECT_EQ(says(megatron(4, {1}, {0}, {1, 1})), "m.idx: the bounds of documents do not begin with 0");
  EXPECT_EQ(says(megatron(4, {1}, {0}, {})), "m.idx: the bounds of documents do not begin with 0");
  EXPECT_EQ(says(megatron(4, {1}, {0}, {0, 2})), "m.idx: bound 1 of documents is 2, not from 0 to 1");
  EXPECT_EQ(says(megatron(4, {1, 1}, {0, 8}, {0, 1})), "m.idx: the documents do not include all sequences");
  std::string huge = megatron(4, {1}, {0}, {0, 1});
  std::fill_n(huge.begin() + 18, 16, '\xff');
  EXPECT_HOLDS(says(huge), "m.idx: too large");
}

TEST_F(Tokenize, ids_beyond_the_vocabulary_are_named_by_position) {
  const std::string file = write("a.u16", raw<std::uint16_t>({1, 2, 300}));
  EXPECT_EQ(refusal({file}, {.vocab_size = 256}), file + ": token 2 is 300, not below the vocabulary size 256");
  EXPECT_EQ(refusal({write("t", "ab\x80")}, {.from = Source::text, .vocab_size = 128}),
            at("t") + ": token 2 is 128, not below the vocabulary size 128");
  EXPECT_EQ(refusal({file}), file + ": ids need a vocabulary size");
}

TEST_F(Tokenize, refuses_other_formats_than_stated) {
  EXPECT_EQ(refusal({write("odd.u16", "abc")}, {.vocab_size = 65536}),
            at("odd.u16") + ": its size is not a multiple of 2 bytes");
  EXPECT_EQ(refusal({write("odd.u32", "abcde")}, {.vocab_size = kMaxVocabSize}),
            at("odd.u32") + ": its size is not a multiple of 4 bytes");
  EXPECT_NE(refusal({write("a.jsonl", "{\"text\":1}\n")}).find("a.jsonl: line 1"), std::string::npos);
  EXPECT_NE(refusal({write("b.jsonl", "{\"text\":\"a\"}\n[]\n")}).find("b.jsonl: line 2: not an object"),
            std::string::npos);
  EXPECT_NE(refusal({write("c.jsonl", "{\"prompt\":\"a\"}\n")}).find("\"text\""), std::string::npos);
  EXPECT_NE(refusal({write("d.jsonl", "{\"text\":\"a\"\n")}).find("d.jsonl: line "), std::string::npos);
  EXPECT_NE(refusal({write("nano.bin", "abcd")}).find("state its format"), std::string::npos);
  EXPECT_NE(refusal({write("list.json", "{}")}).find("state its format"), std::string::npos);
  EXPECT_NE(refusal({at("none")}).find("none"), std::string::npos);
  EXPECT_NE(refusal({at(".")}).find("is a folder"), std::string::npos);
  EXPECT_EQ(refusal({write("e", "")}), at("e") + ": holds no tokens");
  EXPECT_EQ(refusal({at("e"), at("e")}), "the inputs hold no tokens");
  EXPECT_EQ(refusal({}), "no input");
  EXPECT_NE(refusal({"-"}, {.from = Source::u16, .vocab_size = 9}).find("standard input: only text"),
            std::string::npos);
  EXPECT_EQ(refusal({"-", "-"}), "standard input: can be read only once");
  EXPECT_NE(refusal({at("e")}, {.vocab_size = 0}).find("vocabulary size 0 is not from 1"), std::string::npos);
  EXPECT_NE(refusal({at("e")}, {.eos = 256}).find("end-of-document id 256 is not below the vocabulary size 256"),
            std::string::npos);
}

TEST_F(Tokenize, refuses_other_files_than_text_unless_requested) {
  const std::string tail(2000, 'x');
  const auto says = [&](const std::string& bytes) {
    const std::string path = write("x", bytes + tail);
    std::string message = refusal({path});
    EXPECT_EQ(make({path}, {.from = Source::text}).info.tokens, static_cast<std::int64_t>(bytes.size() + tail.size()));
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    return message.substr(path.size() + 2);
  };
  using std::string_literals::operator""s;
  EXPECT_TRUE(says("\x93NUMPY\1\0"s).starts_with("a NumPy array; "));
  EXPECT_TRUE(says("\x1f\x8b\x08").starts_with("compressed by gzip; "));
  EXPECT_TRUE(says("\x28\xb5\x2f\xfd").starts_with("compressed by zstd; "));
  EXPECT_TRUE(says("PK\3\4").starts_with("a zip archive; "));
  EXPECT_TRUE(says("\x89HDF\r\n\x1a\n").starts_with("an HDF5 file; "));
  EXPECT_TRUE(says("\x40\0\0\0\0\0\0\0{\""s).starts_with("a safetensors file, "));
  EXPECT_TRUE(says("fp8-tokens 1 700").starts_with("already a token file, "));
  EXPECT_TRUE(says("fp8-checkpoint 1 700").starts_with("a checkpoint, "));
  EXPECT_TRUE(says("ab\0"s).starts_with("not text: byte 2 is NUL"));
  EXPECT_TRUE(says("\xff").starts_with("not text: not UTF-8"));
  EXPECT_TRUE(says("\xc3(").starts_with("not text: not UTF-8"));
  for (const char* name : {"p.parquet", "p.jsonl"}) {
    EXPECT_EQ(refusal({write(name, "PAR1" + tail)}),
              at(name) + ": a Parquet file; make JSON Lines of it: python3 -c \"import pandas; pandas.read_parquet('" +
                  at(name) + "').to_json('" + at(name[2] == 'p' ? "p.jsonl" : "p.jsonl.jsonl") +
                  "', orient='records', lines=True)\"");
  }
  EXPECT_HOLDS(refusal({write("it's", "PAR1")}), "read_parquet('FILE.parquet').to_json('FILE.jsonl'");
  EXPECT_NE(refusal({write("x.jsonl", "\x1f\x8b\x08")}).find("compressed by gzip"), std::string::npos);
}

TEST_F(Tokenize, accepts_text_of_any_language_and_length) {
  for (const char* character : {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    for (const std::size_t before : {65533U, 65534U, 65535U, 65536U}) {
      const std::string text = std::string(before, 'a') + character + std::string(100000, 'b') + '\0';
      EXPECT_EQ(make({write("x", text)}).info.tokens, static_cast<std::int64_t>(text.size()));
    }
    EXPECT_EQ(make({write("x", std::string(character).substr(0, 1))}).info.tokens, 1);
  }
}

TEST_F(Tokenize, a_pipe_is_checked_too_and_read_completely) {
  const std::string fifo = at("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto through = [&](const std::string& bytes, const auto& use) {
    std::thread writer([&] { test::write_file(fifo, bytes); });
    use();
    writer.join();
  };
  std::string text;
  for (int i = 0; i < 30000; ++i) text += std::to_string(i) + " ";
  through(text, [&] {
    const Made made = make({fifo});
    EXPECT_TRUE(std::equal(made.ids.begin(), made.ids.end(), text.begin(), text.end()));
  });
  through("ab" + std::string(1, '\0'), [&] { EXPECT_NE(refusal({fifo}).find("byte 2 is NUL"), std::string::npos); });
}

TEST_F(Tokenize, the_tokenizer_is_recorded) {
  const std::string text = write("t.txt", "ab"), ids = write("i.u16", raw<std::uint16_t>({1, 2})),
                    digest = "0123456789abcdef0123456789abcdef";
  const auto recorded = [&](std::vector<std::string> inputs, std::optional<std::string> tokenizer) {
    make(std::move(inputs), {.vocab_size = 256, .tokenizer = std::move(tokenizer)});
    return TokenFile(at("out.h5")).info().tokenizer;
  };
  EXPECT_EQ(recorded({text}, {}), "bytes");
  EXPECT_EQ(recorded({ids}, {}), std::nullopt);
  EXPECT_EQ(recorded({text, ids}, {}), std::nullopt);
  EXPECT_EQ(recorded({ids}, "bytes"), "bytes");
  EXPECT_EQ(recorded({text, ids}, "bytes"), "bytes");
  EXPECT_EQ(recorded({ids}, digest), digest);
  EXPECT_EQ(refusal({ids, text}, {.vocab_size = 256, .tokenizer = digest}),
            "a tokenizer of ids is named, but " + text + " holds text, which becomes bytes");
  EXPECT_NE(refusal({ids}, {.vocab_size = 256, .tokenizer = "0123"}).find("is not a digest"), std::string::npos);
}

// Ids of a text as encoded by the tokenizer.
Ids encoded(const token::Tokenizer& tokenizer, const std::string& text, bool special) {
  std::vector<std::uint32_t> ids;
  token::Encoder(tokenizer).encode(text, special, ids);
  return {ids.begin(), ids.end()};
}

TEST_F(Tokenize, text_is_encoded_with_a_tokenizer) {
  const std::string play = test::read_file("share/text/tinyshakespeare.txt");
  const DeclaredTokenizer llama3 = declared_tokenizer("tests/golden/tokenizers/llama3");
  const token::Tokenizer tokenizer = llama3.open();
  const Made whole = make({write("play.txt", play)}, {.encode_with = &llama3});
  EXPECT_EQ(whole.ids, encoded(tokenizer, play, true)) << "independent of splitting";
  EXPECT_EQ(whole.info.vocab_size, tokenizer.vocab_size());
  const std::string lines = "{\"text\":\"To be\"}\n{\"text\":\"\"}\n{\"text\":\"or not\"}\n";
  const Made two = make({write("x.jsonl", lines)}, {.eos = 2001, .encode_with = &llama3, .special = false});
  Ids wanted = encoded(tokenizer, "To be", false);
  const auto second = static_cast<std::int32_t>(wanted.size() + 1);
  wanted.push_back(2001);
  for (const std::int32_t id : encoded(tokenizer, "or not", false)) wanted.push_back(id);
  wanted.push_back(2001);
  EXPECT_EQ(two.ids, wanted);
  EXPECT_EQ(two.documents, (Ids{0, second, static_cast<std::int32_t>(wanted.size())}));
}

TEST_F(Tokenize, a_long_text_without_a_split_point_is_encoded_whole) {
  const DeclaredTokenizer llama2 = declared_tokenizer("tests/golden/tokenizers/llama2");
  const std::string text = std::string(700000, 'a') + " b";
  EXPECT_EQ(make({write("a.txt", text)}, {.encode_with = &llama2}).ids, encoded(llama2.open(), text, true));
}

TEST_F(Tokenize, text_for_a_tokenizer_must_be_utf8) {
  const std::string path = write("bad.txt", std::string(300000, 'a') + " b\xFF c");
  const DeclaredTokenizer gpt2 = declared_tokenizer("tests/golden/tokenizers/gpt2");
  EXPECT_EQ(refusal({path}, {.from = Source::text, .encode_with = &gpt2}),
            path + ": byte 300002 is not UTF-8 (iconv -c -f UTF-8 -t UTF-8 leaves such bytes out)");
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
  EXPECT_EQ(parse_source("megatron"), Source::megatron);
  EXPECT_FALSE(parse_source("parquet"));
}

}  // namespace
}  // namespace fp8::data
