// Splits an array at the commas outside of brackets and strings; lines are split by LineReader.
#include "fp8/json/records.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/input.h"
#include "fp8/base/text.h"
#include "parse_at.h"

namespace fp8::json {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }

// Finds the end of an element, whose text may come in pieces.
class Scanner {
 public:
  // Scans `text` from where the last call ended; true if the element ends at end().
  bool scan(std::string_view text) {
    for (; at_ < text.size(); ++at_) {
      const char c = text[at_];
      if (in_string_) {
        if (!escaped_ && c == '"') {
          in_string_ = false;
          if (depth_ == 0) return ends_after();
        }
        escaped_ = c == '\\' && !escaped_;
      } else if (c == '"') {
        in_string_ = true;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if (c == '}' || c == ']') {
        if (depth_ == 0) return true;
        if (--depth_ == 0) return ends_after();
      } else if (depth_ == 0 && (c == ',' || is_space(c))) {
        return true;
      }
    }
    return false;
  }
  std::size_t end() const { return at_; }

 private:
  bool ends_after() {
    ++at_;
    return true;
  }
  std::size_t at_ = 0, depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

// Reads the elements of an array.
class ArrayReader {
 public:
  ArrayReader(int fd, std::string name, std::string begun)
      : fd_(fd), name_(std::move(name)), buffer_(std::move(begun)) {}

  std::optional<Record> next() {
    if (ended_) return std::nullopt;
    if (!begun_ && next_mark() != '[') fail("not a JSON array");
    if (!begun_) take_mark();
    char mark = next_mark();
    if (begun_ && mark == ',') {
      take_mark();
      mark = next_mark();
    } else if (begun_ && mark != ']') {
      fail(mark == 0 ? "the JSON array has no end" : "no comma between two elements of the JSON array");
    } else if (mark == ']') {
      return end();
    }
    begun_ = true;
    if (mark == 0) fail("the JSON array has no end");
    if (mark == ',' || mark == ']') fail("an element of the JSON array is missing");
    return element();
  }

 private:
  bool fill() {
    buffer_.erase(0, begin_);
    begin_ = 0;
    return append_some(fd_, name_, buffer_, kReadPiece) > 0;
  }
  // The next character that is not white space, not consumed; 0 at the end.
  char next_mark() {
    for (;;) {
      for (; begin_ < buffer_.size(); ++begin_) {
        if (!is_space(buffer_[begin_])) return buffer_[begin_];
        if (buffer_[begin_] == '\n') ++line_;
      }
      if (!fill()) return 0;
    }
  }
  void take_mark() { ++begin_; }
  Record element() {
    Scanner scanner;
    while (!scanner.scan(std::string_view(buffer_).substr(begin_))) {
      if (buffer_.size() - begin_ > kLongestRecord) {
        fail("a record is longer than " + std::to_string(kLongestRecord) + " bytes");
      }
      if (!fill()) fail("the JSON array ends in the middle of the record that begins here");
    }
    Record record{buffer_.substr(begin_, scanner.end()), line_};
    line_ += static_cast<std::uint64_t>(std::count(record.text.begin(), record.text.end(), '\n'));
    begin_ += scanner.end();
    return record;
  }
  std::optional<Record> end() {
    take_mark();
    if (next_mark() != 0) fail("more text after the end of the JSON array");
    ended_ = true;
    return std::nullopt;
  }
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(name_ + ": line " + std::to_string(line_) + ": " + reason);
  }

  int fd_;
  std::string name_, buffer_;
  std::size_t begin_ = 0;  // first byte of the buffer that is not consumed
  std::uint64_t line_ = 1;
  bool begun_ = false, ended_ = false;
};

}  // namespace

bool begins_array(std::string_view head, const std::string& name) {
  head = without_byte_order_mark(head);
  const std::size_t open = head.find_first_not_of(kSpace);
  if (open == std::string_view::npos || head[open] != '[') return false;
  const std::size_t next = head.find_first_not_of(kSpace, open + 1);
  const char first = next == std::string_view::npos ? ']' : head[next];
  return name.ends_with(".json") || first == '{' || first == ']';
}

struct RecordReader::State {
  File file;
  int fd = STDIN_FILENO;
  std::string name;
  Layout layout = Layout::lines;
  std::string head;  // read, but not yet given to one of the readers
  std::optional<LineReader> lines;
  std::optional<ArrayReader> array;
  std::int64_t left = std::numeric_limits<std::int64_t>::max();  // records until the end
  std::exception_ptr failed;                                     // thrown by the next next_batch()

  void begin() {
    if (layout == Layout::by_content) layout = begins_array(head, name) ? Layout::array : Layout::lines;
    if (layout == Layout::array) {
      array.emplace(fd, name, std::move(head));
    } else {
      lines.emplace(fd, name, std::move(head));
    }
    head.clear();
  }
};

RecordReader::RecordReader(const std::string& path, Layout layout, const File::Waiting& waiting)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.name = path == "-" ? "standard input" : path;
  s.layout = layout;
  if (path != "-") {
    s.file = File::open_read(path, waiting);
    s.fd = s.file.fd();
  }
  while (s.head.size() < kReadPiece && append_some(s.fd, s.name, s.head, kReadPiece - s.head.size()) > 0) {
  }
  s.head.erase(0, s.head.size() - without_byte_order_mark(s.head).size());
  if (without_byte_order_mark(s.head).size() < s.head.size())
    throw Error(s.name + ": line 1 column 1: a second byte order mark");
}

RecordReader::~RecordReader() = default;
RecordReader::RecordReader(RecordReader&&) noexcept = default;
RecordReader& RecordReader::operator=(RecordReader&&) noexcept = default;

const std::string& RecordReader::name() const { return state_->name; }
std::string_view RecordReader::head() const { return state_->head; }

void RecordReader::end_after(std::int64_t records) { state_->left = records; }

std::optional<Record> RecordReader::next() {
  State& s = *state_;
  if (s.left-- <= 0) return std::nullopt;
  if (!s.lines && !s.array) s.begin();
  if (s.array) return s.array->next();
  const std::optional<std::string_view> text = s.lines->next_text();
  return text ? std::optional(Record{std::string(*text), s.lines->line()}) : std::nullopt;
}

std::vector<Record> RecordReader::next_batch(std::size_t bytes) {
  State& s = *state_;
  if (s.failed) std::rethrow_exception(std::exchange(s.failed, nullptr));
  std::vector<Record> records;
  std::size_t read = 0;
  try {
    while (read < bytes) {
      std::optional<Record> record = next();
      if (!record) break;
      read += record->text.size();
      records.push_back(std::move(*record));
    }
  } catch (const Error&) {
    if (records.empty()) throw;
    s.failed = std::current_exception();
  }
  return records;
}

}  // namespace fp8::json
