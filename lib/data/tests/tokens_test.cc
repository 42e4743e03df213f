// Token files: round trips in every width; invalid files are refused with a reason.
#include "fp8/data/tokens.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fp8/h5/reader.h"
#include "fp8/h5/writer.h"
#include "fp8_test.h"

namespace fp8::data {
namespace {

using dtype::DType;
using test::error_of;
using test::TemporaryFolder;

std::vector<std::int32_t> all_of(const TokenFile& file) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(file.info().tokens));
  file.read(0, out);
  return out;
}

TEST(Tokens, type_is_the_narrowest) {
  EXPECT_EQ(token_type(1), DType::u8);
  EXPECT_EQ(token_type(256), DType::u8);
  EXPECT_EQ(token_type(257), DType::u16);
  EXPECT_EQ(token_type(65536), DType::u16);
  EXPECT_EQ(token_type(65537), DType::u32);
  EXPECT_EQ(token_type(kMaxVocabSize), DType::u32);
  EXPECT_NE(error_of([] { token_type(0); }).find("0 is not from 1 to 2147483647"), std::string::npos);
  EXPECT_NE(error_of([] { token_type(kMaxVocabSize + 1); }).find("2147483648"), std::string::npos);
}

class TokensOfWidth : public ::testing::TestWithParam<std::int64_t> {};
TEST_P(TokensOfWidth, read_back) {
  const TemporaryFolder folder;
  const std::int64_t vocab = GetParam();
  const auto last = static_cast<std::uint32_t>(vocab - 1);
  std::vector<std::uint32_t> many(600000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::uint32_t>(i * 7) % (last + 1);
  TokenWriter writer(folder.at("t.h5"), vocab, last, false, false);
  writer.end_document();
  writer.append(std::array{0U, last});
  writer.end_document();
  writer.end_document();
  writer.append(many);
  EXPECT_EQ(writer.tokens(), 600002);
  const TokenInfo info = writer.finish();
  EXPECT_EQ(info.tokens, 600002);
  EXPECT_EQ(info.documents, 2);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"t.h5"});

  const TokenFile file(folder.at("t.h5"), true);
  EXPECT_EQ(file.info().tokens, 600002);
  EXPECT_EQ(file.info().documents, 2);
  EXPECT_EQ(file.info().vocab_size, vocab);
  EXPECT_EQ(file.info().eos, last);
  EXPECT_FALSE(file.info().mask);
  std::array<std::uint8_t, 2> counts{};
  file.read_mask(1, counts);
  EXPECT_EQ(counts, (std::array<std::uint8_t, 2>{1, 1}));
  EXPECT_EQ(file.documents(), (std::vector<std::int64_t>{0, 2, 600002}));
  const std::vector<std::int32_t> got = all_of(file);
  EXPECT_EQ(got[0], 0);
  EXPECT_EQ(got[1], static_cast<std::int32_t>(last));
  EXPECT_TRUE(std::equal(many.begin(), many.end(), got.begin() + 2));
  EXPECT_EQ(h5::Reader(folder.at("t.h5"), h5::kTokensMagic).at("tokens").dtype, token_type(vocab));
}
INSTANTIATE_TEST_SUITE_P(All, TokensOfWidth, ::testing::Values(256, 50257, 128256));

TEST(Tokens, mask_round_trips) {
  const TemporaryFolder folder;
  TokenWriter writer(folder.at("m.h5"), 10, std::nullopt, true, false);
  EXPECT_NE(error_of([&] { writer.append(std::array{1U}); }).find("mask and tokens differ"), std::string::npos);
  writer.append(std::array{1U, 2U, 3U}, std::array<std::uint8_t, 3>{1, 0, 1});
  writer.finish();
  const TokenFile file(folder.at("m.h5"));
  EXPECT_TRUE(file.info().mask);
  EXPECT_FALSE(file.info().eos);
  std::array<std::uint8_t, 3> counts{};
  file.read_mask(0, counts);
  EXPECT_EQ(counts, (std::array<std::uint8_t, 3>{1, 0, 1}));
  EXPECT_NE(error_of([&] { file.read_mask(1, counts); }).find("are not in the file"), std::string::npos);
}

TEST(Tokens, truncation_during_use_is_an_error) {
  const TemporaryFolder folder;
  TokenWriter writer(folder.at("t.h5"), 70000, std::nullopt, false, false);
  writer.append(std::vector<std::uint32_t>(100000, 7));
  writer.finish();
  const TokenFile file(folder.at("t.h5"));
  std::vector<std::int32_t> ids(1000);
  file.read(99000, ids);
  EXPECT_EQ(ids, std::vector<std::int32_t>(1000, 7));
  std::filesystem::resize_file(folder.at("t.h5"), 4096);
  EXPECT_NE(error_of([&] { file.read(99000, ids); }).find(folder.at("t.h5") + ": "), std::string::npos);
}

TEST(Tokens, same_tokens_make_the_same_bytes) {
  const TemporaryFolder folder;
  for (const char* name : {"a.h5", "b.h5"}) {
    TokenWriter writer(folder.at(name), 300, std::nullopt, false, false);
    writer.append(std::array{1U, 299U});
    writer.finish();
  }
  EXPECT_EQ(test::read_file(folder.at("a.h5")), test::read_file(folder.at("b.h5")));
  EXPECT_EQ(TokenFile(folder.at("a.h5")).digest().size(), 32U);
}

TEST(Tokens, writer_refuses_and_leaves_nothing) {
  const TemporaryFolder folder;
  const std::string path = folder.at("t.h5");
  {
    TokenWriter writer(path, 256, std::nullopt, false, false);
    writer.append(std::array{1U, 2U});
    EXPECT_EQ(error_of([&] {
                writer.append(std::array{3U, 256U});
              }),
              path + ": token 3 is 256, not below the vocabulary size 256");
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
  EXPECT_NE(error_of([&] { TokenWriter(path, 256, std::nullopt, false, false).finish(); }).find("no tokens"),
            std::string::npos);
  EXPECT_NE(error_of([&] { TokenWriter(path, 256, 256, false, false); }).find("end-of-document id 256 is not below"),
            std::string::npos);
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
  folder.write("t.h5", "precious");
  EXPECT_NE(error_of([&] { TokenWriter(path, 256, std::nullopt, false, false); }).find(": exists"), std::string::npos);
  TokenWriter writer(path, 256, std::nullopt, false, true);
  writer.append(std::array{1U});
  writer.finish();
  EXPECT_EQ(TokenFile(path).info().tokens, 1);
}

TEST(Tokens, reading_past_the_end_is_an_error) {
  const TemporaryFolder folder;
  TokenWriter writer(folder.at("t.h5"), 256, std::nullopt, false, false);
  writer.append(std::array{1U, 2U, 3U});
  writer.finish();
  const TokenFile file(folder.at("t.h5"));
  std::array<std::int32_t, 2> out{};
  file.read(1, out);
  EXPECT_EQ(out, (std::array{2, 3}));
  EXPECT_NE(error_of([&] { file.read(2, out); }).find("not in the file, which has 3"), std::string::npos);
  EXPECT_NE(error_of([&] { file.read(-1, out); }).find("not in the file"), std::string::npos);
}

TEST(Tokens, a_chat_template_of_the_greatest_length_beside_all_other_attributes) {
  const TemporaryFolder folder;
  const chat::StoredTemplate form{"{" + std::string(chat::kMostStoredBytes - 2, ' ') + "}", std::string(32, '0')};
  TokenWriter writer(
      folder.at("t.h5"),
      {.vocab_size = 4, .eos = 3, .mask = true, .sequence_length = 2, .tokenizer = "bytes", .chat_template = form},
      false);
  writer.append(std::array{0U, 1U}, std::array<std::uint8_t, 2>{0, 1});
  writer.finish();
  EXPECT_EQ(TokenFile(folder.at("t.h5"), true).info().chat_template, form);
  EXPECT_EQ(
      error_of([&] {
        TokenWriter(folder.at("x.h5"), {.vocab_size = 4, .chat_template = chat::StoredTemplate{"a/b", ""}}, false);
      }),
      "not the form of a stored template");
}

// A token file written by hand, with any contents.
struct Parts {
  h5::AttributeValue format = std::string("fp8-tokens");
  h5::AttributeValue version = std::int64_t{1};
  h5::AttributeValue vocab_size = std::int64_t{4};
  h5::AttributeValue eos = std::int64_t{-1};
  h5::AttributeValue tokenizer = std::string("bytes");
  DType tokens_type = DType::u8;
  std::vector<std::uint8_t> tokens = {0, 1, 2, 3};
  std::vector<std::uint64_t> documents = {0, 4};
  std::vector<std::uint8_t> mask = {};
  std::vector<std::uint8_t> digests = {};
  h5::Attributes more = {};
};

std::string refusal_of(const Parts& parts, bool verify = false) {
  const TemporaryFolder folder;
  const std::string path = folder.at("hand.h5");
  h5::Writer out(path, h5::kTokensMagic);
  out.attribute("", "format", parts.format);
  out.attribute("", "version", parts.version);
  out.attribute("", "vocab_size", parts.vocab_size);
  out.attribute("", "eos", parts.eos);
  out.attribute("", "tokenizer", parts.tokenizer);
  for (const auto& [name, value] : parts.more) out.attribute("", name, value);
  const auto put = [&](const char* name, DType type, std::size_t size, std::span<const std::byte> bytes) {
    const auto count = static_cast<std::int64_t>(size);
    out.dataset(name, type, {&count, 1}, bytes);
  };
  put("tokens", parts.tokens_type, parts.tokens.size() / dtype::size_of(parts.tokens_type),
      std::as_bytes(std::span(parts.tokens)));
  put("documents", DType::u64, parts.documents.size(), std::as_bytes(std::span(parts.documents)));
  if (!parts.mask.empty()) put("mask", DType::u8, parts.mask.size(), std::as_bytes(std::span(parts.mask)));
  if (!parts.digests.empty()) {
    const std::array<std::int64_t, 2> shape{static_cast<std::int64_t>(parts.digests.size() / 16), 16};
    out.dataset("digests", DType::u8, shape, std::as_bytes(std::span(parts.digests)));
  }
  out.finish();
  const std::string message = error_of([&] {
    const TokenFile file(path, verify);
    all_of(file);
  });
  if (message == "no error") return message;
  EXPECT_TRUE(message.starts_with(path)) << message;
  return message.substr(path.size());
}

TEST(Tokens, an_invalid_file_is_refused) {
  EXPECT_EQ(refusal_of({}), "no error");
  EXPECT_EQ(refusal_of({.format = std::string("fp8-other")}), ": not a token file");
  EXPECT_EQ(refusal_of({.version = std::int64_t{2}}), ": version 2 is not known (1 is)");
  EXPECT_EQ(refusal_of({.version = std::string("1")}), ": attribute \"version\" is not an integer");
  EXPECT_EQ(refusal_of({.vocab_size = std::int64_t{0}}), ": vocab_size 0 is out of range");
  EXPECT_EQ(refusal_of({.eos = std::int64_t{4}}), ": eos is not below vocab_size");
  for (const h5::AttributeValue& bad : {h5::AttributeValue("words"), h5::AttributeValue(std::int64_t{1})})
    EXPECT_EQ(refusal_of({.tokenizer = bad}), ": attribute \"tokenizer\" is neither bytes nor a digest");
  const std::string digest(32, 'a');
  EXPECT_EQ(refusal_of({.more = {{"template", "qwen"}, {"template_digest", digest}}}), "no error");
  for (const h5::Attributes& bad : {h5::Attributes{{"template", "qwen"}},
                                    {{"template_digest", digest}},
                                    {{"template", "/etc/passwd"}, {"template_digest", digest}},
                                    {{"template", std::int64_t{1}}, {"template_digest", digest}},
                                    {{"template", "qwen"}, {"template_digest", "a"}}})
    EXPECT_EQ(refusal_of({.more = bad}),
              ": attributes \"template\" and \"template_digest\" are not those of a chat template");
  EXPECT_EQ(refusal_of({.tokens_type = DType::f32}), ": /tokens: must be uint8, uint16 or uint32");
  EXPECT_EQ(refusal_of({.tokens = {}}), ": /tokens: must be a vector of at least one token");
  EXPECT_EQ(refusal_of({.documents = {4}}), ": /documents: must be a uint64 vector of at least two offsets");
  EXPECT_EQ(refusal_of({.documents = {1, 4}}), ": /documents: must increase from 0 to 4");
  EXPECT_EQ(refusal_of({.documents = {0, 3, 3, 4}}), ": /documents: must increase from 0 to 4");
  EXPECT_EQ(refusal_of({.documents = {0, 5}}), ": /documents: must increase from 0 to 4");
  EXPECT_EQ(refusal_of({.mask = {1, 1}}), ": /mask: must be uint8, as long as /tokens");
  EXPECT_EQ(refusal_of({.digests = std::vector<std::uint8_t>(32)}),
            ": /digests: must be uint8 [1, 16], a digest for each 64 KiB of /tokens");
  EXPECT_TRUE(refusal_of({.digests = std::vector<std::uint8_t>(16)}).starts_with(": /tokens: damaged: block 0"));
  const std::string beyond = ": token 3 is 3, not below the vocabulary size 3";
  EXPECT_EQ(refusal_of({.vocab_size = std::int64_t{3}}), beyond);
  EXPECT_EQ(refusal_of({.vocab_size = std::int64_t{3}}, true), beyond);
}

TEST(Tokens, damage_is_found) {
  const TemporaryFolder folder;
  const std::string path = folder.at("t.h5");
  TokenWriter writer(path, 256, std::nullopt, false, false);
  writer.append(std::vector<std::uint32_t>(5000, 7U));
  writer.finish();
  const std::uint64_t at = h5::Reader(path, h5::kTokensMagic).at("tokens").offset;
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at + 100));
    file.put(8);
  }
  EXPECT_EQ(TokenFile(path).info().tokens, 5000);
  EXPECT_NE(error_of([&] { TokenFile(path, true); }).find("tokens"), std::string::npos);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_NE(error_of([&] { TokenFile{path}; }).find("truncated"), std::string::npos);
  EXPECT_NE(error_of([&] { TokenFile{folder.write("text", std::string(2000, 'x'))}; }).find("not a token file"),
            std::string::npos);
  EXPECT_NE(error_of([&] { TokenFile{folder.at("none")}; }).find("none"), std::string::npos);
}

// Three blocks of ids, three blocks of mask, ten documents, as fp8-tokenize writes them.
class TokensDamaged : public test::FolderTest {
 protected:
  static constexpr std::size_t kTokens = 70000;
  TokensDamaged() {
    std::vector<std::uint32_t> ids(kTokens / 10);
    std::vector<std::uint8_t> mask(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::uint32_t>(i % 999);
      mask[i] = i % 3 == 0 ? 0 : 1;
    }
    TokenWriter writer(path, 1000, std::nullopt, true, false);
    for (int i = 0; i < 10; ++i) {
      writer.append(ids, mask);
      writer.end_document();
    }
    writer.finish();
  }
  // Adds 1 to a byte of a dataset, and returns its offset in the file.
  std::uint64_t flip(const char* dataset, std::uint64_t byte) const {
    const std::uint64_t place = h5::Reader(path, h5::kTokensMagic).at(dataset).offset + byte;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(place));
    const int old = file.get();
    file.seekp(static_cast<std::streamoff>(place));
    file.put(static_cast<char>(old ^ 1));
    return place;
  }
  const std::string path = at("t.h5");
};

TEST_F(TokensDamaged, token_blocks_are_compared_when_read) {
  const std::uint64_t begin = flip("tokens", 65536 + 1) - 1;
  const TokenFile file(path);
  std::vector<std::int32_t> out(1000);
  file.read(31768, out);
  EXPECT_EQ(out[999], 32767 % 7000 % 999);
  const std::string damaged = path + ": /tokens: damaged: block 1, bytes " + std::to_string(begin) + " to " +
                              std::to_string(begin + 65536) +
                              " of the file, differs from its digest; make the file again";
  for (const std::int64_t first : {31769, 65535, 40000, 31769})
    EXPECT_EQ(error_of([&] { file.read(first, out); }), damaged) << first;
  file.read(65536, out);
  EXPECT_EQ(out[0], 65536 % 7000 % 999);
  file.read(69000, out);
  EXPECT_EQ(out[999], 69999 % 7000 % 999);
}

TEST_F(TokensDamaged, mask_blocks_are_compared_when_read) {
  flip("mask", 69999);
  const TokenFile file(path);
  std::vector<std::uint8_t> out(65536);
  file.read_mask(0, out);
  EXPECT_EQ(out[65535], 65535 % 7000 % 3 == 0 ? 0 : 1);
  EXPECT_NE(error_of([&] { file.read_mask(1, out); }).find(": /mask: damaged: block 1, bytes "), std::string::npos);
}

TEST_F(TokensDamaged, a_file_changed_under_a_reader_is_noticed) {
  const TokenFile file(path);
  std::vector<std::int32_t> out(1000);
  std::vector<std::uint8_t> mask(1000);
  file.read(0, out);
  file.read_mask(0, mask);
  flip("tokens", 1);
  flip("mask", 1);
  EXPECT_NE(error_of([&] { file.read(0, out); }).find(": /tokens: damaged: block 0, bytes "), std::string::npos);
  EXPECT_NE(error_of([&] { file.read_mask(0, mask); }).find(": /mask: damaged: block 0, bytes "), std::string::npos);
}

TEST_F(TokensDamaged, documents_and_digests_are_compared_on_opening) {
  for (const char* dataset : {"documents", "digests", "mask_digests"}) {
    flip(dataset, 9);
    EXPECT_EQ(error_of([&] { TokenFile{path}; }),
              path + ": /" + dataset + ": damaged: its bytes differ from its digest");
    flip(dataset, 9);
  }
  EXPECT_EQ(TokenFile(path, true).info().documents, 10);
}

TEST_F(TokensDamaged, a_file_without_block_digests_is_compared_on_opening) {
  const std::string old = at("old.h5");
  const std::array<std::int64_t, 1> count{200000};
  for (const char* bad : {"tokens", "mask", ""}) {
    h5::Writer out(old, h5::kTokensMagic);
    out.attribute("", "format", std::string("fp8-tokens"));
    out.attribute("", "version", std::int64_t{1});
    out.attribute("", "vocab_size", std::int64_t{256});
    const std::array<std::uint64_t, 2> documents{0, 200000};
    out.dataset("documents", DType::u64, std::array<std::int64_t, 1>{2}, std::as_bytes(std::span(documents)));
    const std::vector<std::byte> ones(200000, std::byte{1});
    for (const char* name : {"tokens", "mask"}) out.dataset(name, DType::u8, count, ones);
    out.finish();
    if (*bad == 0) {
      EXPECT_EQ(TokenFile(old).info().tokens, 200000);
      continue;
    }
    const std::uint64_t place = h5::Reader(old, h5::kTokensMagic).at(bad).offset + 150000;
    std::fstream(old, std::ios::in | std::ios::out | std::ios::binary).seekp(static_cast<std::streamoff>(place)).put(2);
    EXPECT_EQ(error_of([&] { TokenFile{old}; }), old + ": /" + bad + ": damaged: its bytes differ from its digest");
  }
}

TEST_F(TokensDamaged, several_threads_read_at_once) {
  const TokenFile file(path);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::int32_t> ids(777);
      std::vector<std::uint8_t> mask(777);
      for (int i = 0; i < 300; ++i) {
        const std::int64_t first = (t * 7919 + i * 104729) % (70000 - 777);
        file.read(first, ids);
        file.read_mask(first, mask);
        for (std::int64_t j = 0; j < 777; ++j) {
          const std::int64_t at = (first + j) % 7000;
          if (ids[static_cast<std::size_t>(j)] != at % 999 || mask[static_cast<std::size_t>(j)] != (at % 3 != 0))
            ++wrong;
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace fp8::data
