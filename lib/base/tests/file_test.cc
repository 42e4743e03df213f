// Files: complete reads and writes, and errors that contain the path.
#include "fp8/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "fp8/base/checked.h"
#include "fp8/base/input.h"
#include "fp8_test.h"

namespace fp8 {
namespace {

using test::error_of;
using test::TemporaryFolder;
using test::write_file;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Error, CarriesItsStatus) {
  EXPECT_EQ(Error("x").code(), Exit::bad);
  EXPECT_EQ(Error("x", Exit::again).code(), Exit::again);
  EXPECT_EQ(error_of([] { throw_errno("p", "cannot sync", ENOSPC); }), "p: cannot sync: No space left on device");
  EXPECT_EQ(error_of([] { throw_errno("p", "", EIO); }), "p: Input/output error");
}

TEST(Checked, ThrowsInsteadOfWrapping) {
  EXPECT_EQ(checked_add(2, 3), 5);
  EXPECT_EQ(error_of([] { checked_add(std::numeric_limits<int>::max(), 1, "a"); }), "a: too large");
  EXPECT_EQ(checked_mul<std::uint64_t>(1ULL << 32U, 1ULL << 31U), 1ULL << 63U);
  EXPECT_EQ(error_of([] { checked_mul<std::uint64_t>(1ULL << 32U, 1ULL << 32U, "b"); }), "b: too large");
  EXPECT_EQ(error_of([] { checked_cast<std::uint8_t>(256, "c"); }), "c: out of range");
  EXPECT_EQ(error_of([] { checked_cast<std::uint64_t>(-1, "c"); }), "c: out of range");
  EXPECT_EQ(checked_product(std::array<std::int64_t, 3>{2, 3, 4}), 24);
  EXPECT_EQ(checked_product({}), 1);
  EXPECT_EQ(checked_product(std::array<std::int64_t, 2>{0, std::numeric_limits<std::int64_t>::max()}), 0);
  EXPECT_EQ(error_of([] { checked_product(std::array<std::int64_t, 1>{-1}, "s"); }), "s: negative extent");
}

TEST(File, AppendDoesNotWaitForTheReaderOfAPipe) {
  const TemporaryFolder folder;
  const std::string pipe = folder.at("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { File::open_append(pipe); }), pipe + ": No such device or address");
  const File reader = File::open_update(pipe);
  EXPECT_EQ(error_of([&] { File::open_append(pipe); }), pipe + ": is a pipe, not a file");
}

TEST(File, WritesAndReads) {
  const TemporaryFolder folder;
  const std::string path = folder.at("f");
  File f = File::create_exclusive(path);
  f.write_all("hello world");
  EXPECT_EQ(f.size(), 11U);
  f.pwrite_all(std::as_bytes(std::span(std::string_view("W"))), 6);
  std::array<std::byte, 5> five{};
  f.pread_exact(five, 6);
  EXPECT_EQ(text_of(five), "World");
  f.seek(0);
  f.read_exact(five);
  EXPECT_EQ(text_of(five), "hello");
  f.truncate(5);
  f.sync();
  f.close();
  EXPECT_FALSE(f.is_open());
  f.close();  // twice is fine
  EXPECT_EQ(read_text_file(path, 100), "hello");
  File::open_append(path).write_all("!");
  EXPECT_EQ(read_text_file(path, 6), "hello!");
}

TEST(File, BytesWhoseWritingHasBegunAreThoseWritten) {
  const TemporaryFolder folder;
  File file = File::create_exclusive(folder.at("x"));
  file.write_all("0123456789");
  file.start_sync(2, 8);
  file.start_sync(8, 1000);  // more than the file has
  file.write_all("abc");
  file.sync();
  file.close();
  EXPECT_EQ(read_text_file(folder.at("x"), 100), "0123456789abc");
}

TEST(File, EndsTooEarly) {
  const TemporaryFolder folder;
  write_file(folder.at("f"), "abc");
  File f = File::open_read(folder.at("f"));
  std::array<std::byte, 5> five{};
  EXPECT_EQ(error_of([&] { f.read_exact(five); }), folder.at("f: ends 2 bytes too early"));
  EXPECT_EQ(error_of([&] { f.pread_exact(five, 1); }), folder.at("f: ends 3 bytes too early"));
  EXPECT_EQ(error_of([&] { f.pread_exact(five, 1000); }), folder.at("f: ends 5 bytes too early"));
  EXPECT_EQ(error_of([&] { f.pread_exact(five, std::numeric_limits<std::uint64_t>::max()); }),
            folder.at("f: too large"));
  EXPECT_EQ(f.read_some(five), 0U);
}

TEST(File, ErrorsNameThePath) {
  const TemporaryFolder folder;
  const std::string path = folder.at("f");
  EXPECT_EQ(error_of([&] { File::open_read(path); }), path + ": No such file or directory");
  write_file(path, "abc");
  EXPECT_EQ(error_of([&] { File::create_exclusive(path); }), path + ": File exists");
  EXPECT_EQ(error_of([&] { File::open_read(path + "/x"); }), path + "/x: Not a directory");
  File f = File::open_read(path);
  EXPECT_EQ(error_of([&] { f.write_all("x"); }), path + ": cannot write: Bad file descriptor");
  File full = File::open_update("/dev/full");
  EXPECT_EQ(error_of([&] { full.write_all("x"); }), "/dev/full: cannot write: No space left on device");
}

TEST(File, RecognizesAGitLfsPointer) {
  const TemporaryFolder folder;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, '0') + "\nsize 9\n";
  const std::string path = folder.write("model.safetensors", pointer);
  EXPECT_EQ(error_of([&] { File::open_read(path); }), path + ": a Git LFS pointer, not the file; run git lfs pull");
  EXPECT_NO_THROW(File::open_read(folder.write("a", " " + pointer)));
  EXPECT_NO_THROW(File::open_read(folder.write("b", pointer.substr(0, 20))));
  EXPECT_NO_THROW(File::open_read(folder.write("c", pointer + std::string(1024, 'x'))));
}

TEST(File, MovesItsDescriptor) {
  const TemporaryFolder folder;
  write_file(folder.at("f"), "abc");
  File a = File::open_read(folder.at("f"));
  const int fd = a.fd();
  File b = std::move(a);
  EXPECT_EQ(b.fd(), fd);
  File c;
  EXPECT_FALSE(c.is_open());
  c = std::move(b);
  EXPECT_EQ(c.fd(), fd);
  EXPECT_EQ(c.path(), folder.at("f"));
}

TEST(File, TemporaryHasNoName) {
  const TemporaryFolder folder;
  ASSERT_EQ(::setenv("TMPDIR", folder.path().c_str(), 1), 0);
  File file = File::temporary();
  EXPECT_TRUE(folder.names().empty());
  file.write_all("text");
  EXPECT_EQ(file.size(), 4U);
  ASSERT_EQ(::setenv("TMPDIR", folder.at("gone").c_str(), 1), 0);
  EXPECT_EQ(error_of([] { File::temporary(); }),
            folder.at("gone") + ": cannot make a temporary file: No such file or directory");
  ASSERT_EQ(::unsetenv("TMPDIR"), 0);
}

TEST(Input, IsReadPieceByPieceFromTheFilePosition) {
  const TemporaryFolder folder;
  write_file(folder.at("f"), "abcdefg");
  const File f = File::open_read(folder.at("f"));
  std::array<std::byte, 2> two{};
  EXPECT_EQ(read_some(f.fd(), "name", two), 2U);
  EXPECT_EQ(two[1], std::byte{'b'});
  std::string text = "text ";
  EXPECT_EQ(append_some(f.fd(), "name", text, 3), 3U);
  EXPECT_EQ(text, "text cde");
  EXPECT_EQ(append_some(f.fd(), "name", text, 100), 2U);
  EXPECT_EQ(append_some(f.fd(), "name", text, 100), 0U);
  EXPECT_EQ(text, "text cdefg");
  EXPECT_EQ(error_of([&] { append_some(-1, "name", text, 3); }), "name: cannot read: Bad file descriptor");
  EXPECT_EQ(text, "text cdefg");
  EXPECT_EQ(error_of([&] { read_some(-1, "name", two); }), "name: cannot read: Bad file descriptor");
}

TEST(ReadTextFile, IsBounded) {
  const TemporaryFolder folder;
  std::string text(200'000, 'a');
  text += "end";
  write_file(folder.at("f"), text);
  EXPECT_EQ(read_text_file(folder.at("f"), text.size()), text);
  EXPECT_EQ(error_of([&] { read_text_file(folder.at("f"), text.size() - 1); }),
            folder.at("f: larger than 195 KiB, the most that is read"));
  EXPECT_EQ(error_of([&] { read_text_file("/dev/zero", 1000); }),
            "/dev/zero: larger than 1000 B, the most that is read");
  EXPECT_EQ(error_of([&] { read_text_file(folder.path(), 1 << 20); }), folder.path() + ": cannot read: Is a directory");
  EXPECT_EQ(read_text_file("/dev/null", 0), "");
}

}  // namespace
}  // namespace fp8
