// safetensors: golden files, round trips, and the error message of every rule of the format.
#include "fp8/hf/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstring>

#include "fp8/base/file.h"
#include "fp8_test.h"
#include "safetensors_text.h"

namespace fp8::hf {
namespace {

using test::error_of;
using test::TemporaryFolder;

TEST(Safetensors, reads_what_transformers_wrote) {
  const SafetensorsFile file("tests/golden/models/llama3/hf/model.safetensors");
  EXPECT_EQ(file.tensors().size(), 21U);
  const TensorInfo* t = file.find("model.layers.1.mlp.down_proj.weight");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->dtype, "BF16");
  EXPECT_EQ(t->format, dtype::DType::bf16);
  EXPECT_EQ(t->shape, (std::vector<std::int64_t>{64, 176}));
  EXPECT_EQ(t->end - t->begin, 64U * 176 * 2);
  EXPECT_EQ(file.find("model.layers.2.mlp.down_proj.weight"), nullptr);
}

TEST(Safetensors, writes_by_size_then_name_and_reads_back) {
  const TemporaryFolder folder;
  const std::string path = folder.at("x.safetensors");
  using dtype::DType;
  SafetensorsWriter writer(path, {{"b", DType::bf16, {2}},
                                  {"z", DType::f32, {1, 2}},
                                  {"codes", DType::e4m3, {3}},
                                  {"a", DType::bf16, {}},
                                  {"empty", DType::f32, {0, 7}}});
  const auto put = [&](const char* name, std::string_view bytes) {
    writer.begin(name);
    writer.write(std::as_bytes(std::span(bytes)));
  };
  put("codes", "xyz");  // not in the order of the file
  put("b", "cdef");
  writer.begin("z");
  writer.write(std::as_bytes(std::span(std::string_view("01234"))));
  writer.write(std::as_bytes(std::span(std::string_view("567"))));
  put("a", "ab");
  writer.finish();
  const std::string bytes = test::read_file(path);
  EXPECT_TRUE(bytes.ends_with("01234567abcdefxyz"));

  const SafetensorsFile file(path);
  EXPECT_NE(read_text_file(path, 1 << 20).find(R"("__metadata__":{"format":"pt"})"), std::string::npos);
  ASSERT_EQ(file.tensors().size(), 5U);
  EXPECT_TRUE(file.find("a")->shape.empty());
  EXPECT_EQ(file.find("a")->elements(), 1);
  EXPECT_EQ(file.find("empty")->elements(), 0);
  std::array<char, 2> out{};
  file.read(*file.find("b"), 2, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(std::string(out.data(), 2), "ef");
  EXPECT_NE(error_of([&] {
              file.read(*file.find("b"), 3, std::as_writable_bytes(std::span(out)));
            }).find("read past its end"),
            std::string::npos);
  struct stat st {};
  ASSERT_EQ(stat(path.c_str(), &st), 0);
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(st.st_mode & 0777U, 0666U & ~mask);
}

TEST(Safetensors, header_is_padded_to_eight_bytes) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "ab", "abc", "abcd"}) {
    const std::string path = folder.at(name);
    SafetensorsWriter writer(path, {{name, dtype::DType::u8, {1}}});
    writer.begin(name);
    writer.write(std::as_bytes(std::span("x", 1)));
    writer.finish();
    EXPECT_EQ((std::filesystem::file_size(path) - 1) % 8, 0U);
    EXPECT_EQ(SafetensorsFile(path).tensors().size(), 1U);
  }
}

TEST(Safetensors, writer_counts_bytes_and_names) {
  const TemporaryFolder folder;
  const auto spec = [](const char* name) { return TensorSpec{name, dtype::DType::u8, {2}}; };
  EXPECT_NE(error_of([&] {
              SafetensorsWriter(folder.at("d"), {spec("a"), spec("a")});
            }).find("\"a\" is used twice"),
            std::string::npos);
  SafetensorsWriter writer(folder.at("w"), {spec("a"), spec("b")});
  EXPECT_NE(error_of([&] { writer.begin("c"); }).find("\"c\" is not in the header"), std::string::npos);
  writer.begin("a");
  EXPECT_NE(error_of([&] { writer.write(std::as_bytes(std::span("abc", 3))); }).find("more data"), std::string::npos);
  writer.write(std::as_bytes(std::span("a", 1)));
  EXPECT_NE(error_of([&] { writer.finish(); }).find("a: 1 bytes of data are missing"), std::string::npos);
  EXPECT_NE(error_of([&] { writer.begin("b"); }).find("a: 1 bytes of data are missing"), std::string::npos);
  writer.write(std::as_bytes(std::span("a", 1)));
  EXPECT_NE(error_of([&] { writer.begin("a"); }).find("written before"), std::string::npos);
  EXPECT_NE(error_of([&] { writer.finish(); }).find("b: not written"), std::string::npos);
}

TEST(Safetensors, an_empty_file_list_and_padding_are_legal) {
  const TemporaryFolder folder;
  EXPECT_TRUE(SafetensorsFile(folder.write("e", safetensors("{}      "))).tensors().empty());
  EXPECT_EQ(SafetensorsFile(folder.write("z", safetensors(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})")))
                .tensors()
                .size(),
            1U);
}

struct Hostile {
  const char* header;
  std::size_t data;
  const char* message;
};

class SafetensorsRefuses : public ::testing::TestWithParam<Hostile> {};
TEST_P(SafetensorsRefuses, by_rule) {
  const TemporaryFolder folder;
  const std::string path = folder.write("bad", safetensors(GetParam().header, std::string(GetParam().data, 'x')));
  const std::string message = error_of([&] { SafetensorsFile{path}; });
  EXPECT_EQ(message.substr(0, path.size()), path) << message;
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}
INSTANTIATE_TEST_SUITE_P(
    All, SafetensorsRefuses,
    ::testing::Values(
        Hostile{"", 0, "does not begin with '{'"}, Hostile{"[]", 0, "does not begin with '{'"},
        Hostile{" {}", 0, "does not begin with '{'"}, Hostile{"{\"a\xff\":1}", 0, "not UTF-8"},
        Hostile{"{\"a\":}", 0, "header: line 1"}, Hostile{"{} x", 0, "header: line 1"},
        Hostile{R"({"a":1,"a":1})", 0, "duplicate key"}, Hostile{R"({"a":1})", 0, "not an object"},
        Hostile{R"({"__metadata__":{"a":1}})", 0, "must map text to text"},
        Hostile{R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4, "dtype \"F99\" is not supported"},
        Hostile{R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "\"dtype\""},
        Hostile{R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "\"shape\""},
        Hostile{R"({"a":{"dtype":"F32","shape":[1]}})", 4, "\"data_offsets\""},
        Hostile{R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "whole numbers"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "whole numbers"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4, "two whole numbers"},
        Hostile{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "two whole numbers"},
        Hostile{R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[4,0]}})", 4, "end before they begin"},
        Hostile{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "make 8 bytes, data_offsets give 4"},
        Hostile{R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4, "too large"},
        Hostile{R"({"a":{"dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,4]}})", 4, "too large"},
        Hostile{R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "out of range"},
        Hostile{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8, "gap before tensor \"a\""},
        Hostile{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                    "b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
                5, "gap before tensor \"b\""},
        Hostile{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                    "b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                3, "overlap at tensor \"b\""},
        Hostile{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3, "take 2 bytes, the file has 3"},
        Hostile{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "take 2 bytes, the file has 1"}));

TEST(Safetensors, refuses_bad_lengths_and_kinds) {
  const TemporaryFolder folder;
  const auto refusal = [](const std::string& path) { return error_of([&] { SafetensorsFile{path}; }); };
  EXPECT_NE(refusal(folder.write("short", "1234567")).find("shorter than 8 bytes"), std::string::npos);
  EXPECT_NE(refusal(folder.write("long", std::string(7, '\0') + "\x7f")).find("at most 100000000"), std::string::npos);
  EXPECT_NE(refusal(folder.write("past", std::string("\x05\0\0\0\0\0\0\0{}", 10))).find("past the end"),
            std::string::npos);
  EXPECT_NE(refusal(folder.path()).find("not a regular file"), std::string::npos);
  EXPECT_NE(refusal(folder.at("none")).find("none"), std::string::npos);
  ASSERT_EQ(mkfifo(folder.at("fifo").c_str(), 0600), 0);
  EXPECT_NE(refusal(folder.at("fifo")).find("not a regular file"), std::string::npos);
}

TEST(Safetensors, a_file_truncated_while_open_is_an_error) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("cut", safetensors(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", "123456789"));
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  std::array<std::byte, 9> out{};
  EXPECT_NE(error_of([&] { file.read(file.tensors().front(), 0, out); }).find(path), std::string::npos);
}

}  // namespace
}  // namespace fp8::hf
