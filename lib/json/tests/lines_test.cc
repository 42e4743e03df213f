// JSON Lines from files and pipes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "helpers.h"

namespace fp8::json {
namespace {

// A file with the given content, removed by the destructor.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view text) : path_(folder_.write("lines", text)) {}
  void append(std::string_view text) const {
    File f = File::open_append(path_);
    f.write_all(text);
    f.close();
  }
  const std::string& path() const { return path_; }

 private:
  test::TemporaryFolder folder_;
  std::string path_;
};

std::vector<std::int64_t> all(LineReader& reader) {
  std::vector<std::int64_t> values;
  while (const auto v = reader.next()) values.push_back(v->as_int());
  return values;
}

TEST(LineReader, ReadsLines) {
  const TemporaryFile file("1\n\n  \r\n2\r\n3");
  LineReader reader(file.path());
  EXPECT_EQ(reader.next()->as_int(), 1);
  EXPECT_EQ(reader.line(), 1U);
  EXPECT_EQ(reader.next()->as_int(), 2);
  EXPECT_EQ(reader.line(), 4U);
  EXPECT_EQ(reader.next()->as_int(), 3);
  EXPECT_EQ(reader.next(), std::nullopt);
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST(LineReader, AByteOrderMarkIsPartOfNoFile) {
  const TemporaryFile file(
      "\xEF\xBB\xBF"
      "1\n2\n\xEF\xBB\xBF"
      "3\n");
  LineReader reader(file.path());
  EXPECT_EQ(reader.next()->as_int(), 1);
  EXPECT_EQ(reader.next()->as_int(), 2);
  EXPECT_EQ(error_of([&] { reader.next(); }), file.path() + ": line 3 column 1: byte order mark");
}

TEST(LineReader, ARecordOverSeveralLines) {
  const TemporaryFile file("{\n  \"a\": 1\n}\n");
  LineReader reader(file.path());
  const std::string message = error_of([&] { reader.next(); });
  EXPECT_TRUE(message.ends_with("; a record is one line, or an element of an array")) << message;
}

TEST(LineReader, EmptyInput) {
  const TemporaryFile file("");
  LineReader reader(file.path());
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST(LineReader, ErrorsNameTheLineAndReadingContinues) {
  const TemporaryFile file("1\n{\"a\":}\n3\n");
  LineReader reader(file.path());
  EXPECT_EQ(reader.next()->as_int(), 1);
  EXPECT_EQ(error_of([&] { reader.next(); }).substr(0, file.path().size() + 18), file.path() + ": line 2 column 6:");
  EXPECT_EQ(reader.next()->as_int(), 3);
  EXPECT_EQ(error_of([] { LineReader("/nowhere/x"); }), "/nowhere/x: No such file or directory");
}

TEST(LineReader, ReadsAppendedLinesAfterTheEnd) {
  const TemporaryFile file("{\"a\":1}\n");
  LineReader reader(file.path());
  EXPECT_TRUE(reader.next());
  EXPECT_EQ(reader.next(), std::nullopt);
  file.append("{\"a\":");
  EXPECT_EQ(error_of([&] { reader.next(); }).substr(0, file.path().size() + 8), file.path() + ": line 2");
  file.append("{\"a\":3}\n");
  EXPECT_EQ(reader.next()->as_object().at("a").as_int(), 3);
  EXPECT_EQ(reader.line(), 3U);
}

TEST(LineReader, TruncatedValuesAreReportedOnTheirLine) {
  const TemporaryFile file("1\n{\"a\":\n2\n");
  LineReader reader(file.path());
  EXPECT_TRUE(reader.next());
  EXPECT_EQ(error_of([&] { reader.next(); }).substr(0, file.path().size() + 18), file.path() + ": line 2 column 6:");
  EXPECT_EQ(reader.next()->as_int(), 2);
}

TEST(LineReader, LongLinesAndManyLines) {
  std::string text = "\"" + std::string(1'000'000, 'x') + "\"\n";
  for (int i = 0; i < 50'000; ++i) text += std::to_string(i) + "\n";
  const TemporaryFile file(text);
  LineReader reader(file.path());
  EXPECT_EQ(reader.next()->as_string().size(), 1'000'000U);
  const std::vector<std::int64_t> values = all(reader);
  ASSERT_EQ(values.size(), 50'000U);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<std::int64_t>(i));
}

TEST(LineReader, RefusesAnUnboundedLine) {
  LineReader reader("/dev/zero");
  EXPECT_EQ(error_of([&] { reader.next(); }), "/dev/zero: line 1: longer than 67108864 bytes");
}

TEST(LineReader, Pipe) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::write(ends[1], "1\n2", 3), 3);
  LineReader reader(ends[0], "standard input");
  EXPECT_EQ(reader.next()->as_int(), 1);
  ASSERT_EQ(::write(ends[1], "3\nx\n", 4), 4);
  ::close(ends[1]);
  EXPECT_EQ(reader.next()->as_int(), 23);
  EXPECT_EQ(error_of([&] { reader.next(); }).substr(0, 31), "standard input: line 3 column 1");
  ::close(ends[0]);
}

}  // namespace
}  // namespace fp8::json
