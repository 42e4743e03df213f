// Kinds of files by their first bytes, and pipes.
#include "fp8/base/file_kind.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "fp8_test.h"

namespace fp8 {
namespace {

using namespace std::string_view_literals;

TEST(FileKind, ByFirstBytes) {
  EXPECT_EQ(kind_of_file("fp8-checkpoint 1 x"), FileKind::checkpoint);
  EXPECT_EQ(kind_of_file("fp8-tokens 1 x"), FileKind::tokens);
  EXPECT_EQ(kind_of_file("\x89HDF\r\n\x1A\nx"), FileKind::hdf5);
  EXPECT_EQ(kind_of_file("\x93NUMPY\x01"), FileKind::numpy);
  EXPECT_EQ(kind_of_file("PAR1"), FileKind::parquet);
  EXPECT_EQ(kind_of_file("\x1F\x8B\x08"), FileKind::gzip);
  EXPECT_EQ(kind_of_file("\x28\xB5\x2F\xFD"), FileKind::zstd);
  EXPECT_EQ(kind_of_file("PK\x05\x06"), FileKind::zip);
  EXPECT_EQ(kind_of_file("\x89PNG\r\n"), FileKind::png);
  EXPECT_EQ(kind_of_file("\177ELF\2"), FileKind::program);
  EXPECT_EQ(kind_of_file(""), FileKind::unknown);
  EXPECT_EQ(kind_of_file(R"({"type":"run"})"), FileKind::unknown);
}

class Streams : public test::FolderTest {};

TEST_F(Streams, ArePipesAndCharacterDevices) {
  const std::string pipe = at("pipe"), file = at("file"), link = at("link");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::ofstream(file) << "x";
  ASSERT_EQ(::symlink(pipe.c_str(), link.c_str()), 0);
  EXPECT_TRUE(is_stream(pipe));
  EXPECT_TRUE(is_stream(link));
  EXPECT_TRUE(is_stream("/dev/null"));
  EXPECT_FALSE(is_stream(file));
  EXPECT_FALSE(is_stream(at("none")));
}

TEST(FileKind, SafetensorsHaveALengthBeforeTheHeader) {
  EXPECT_EQ(kind_of_file("\x10\0\0\0\0\0\0\0{\"a\":{}}"sv), FileKind::safetensors);
  EXPECT_EQ(kind_of_file("some text{\"a\":1}"), FileKind::unknown);
  EXPECT_EQ(kind_of_file("\x10\0\0\0\0\0\0\0{"sv), FileKind::unknown);
}

}  // namespace
}  // namespace fp8
