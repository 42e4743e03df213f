// JSON Lines from a descriptor, with one buffer no longer than the longest line.
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/input.h"
#include "fp8/base/text.h"
#include "parse_at.h"

namespace fp8::json {
namespace {

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

}  // namespace

LineReader::LineReader(const std::string& path, const File::Waiting& waiting)
    : file_(File::open_read(path, waiting)), fd_(file_.fd()), name_(path) {}

LineReader::LineReader(int fd, std::string name, std::string begun)
    : fd_(fd), name_(std::move(name)), buffer_(std::move(begun)) {}

// Appends a piece of input to the buffer; false at the end.
bool LineReader::fill() {
  buffer_.erase(0, begin_);
  scanned_ -= begin_;
  begin_ = 0;
  return append_some(fd_, name_, buffer_, kReadPiece) > 0;
}

// The next line with its newline, or the unterminated rest; not yet consumed.
std::optional<std::string_view> LineReader::next_line() {
  for (;;) {
    const std::size_t newline = buffer_.find('\n', scanned_);
    if (newline != std::string::npos) {
      whole_ = true;
      return std::string_view(buffer_).substr(begin_, newline + 1 - begin_);
    }
    scanned_ = buffer_.size();
    if (scanned_ - begin_ > kLongestRecord) {
      throw Error(name_ + ": line " + std::to_string(line_ + 1) + ": longer than " + std::to_string(kLongestRecord) +
                  " bytes");
    }
    if (fill()) continue;
    whole_ = false;
    if (begin_ == buffer_.size()) return std::nullopt;
    return std::string_view(buffer_).substr(begin_);
  }
}

std::optional<std::string_view> LineReader::next_text() {
  while (const std::optional<std::string_view> line = next_line()) {
    if (blank(*line) && !whole_) return std::nullopt;
    // Without its newline, so that a truncated value is reported on this line.
    std::string_view text = whole_ ? line->substr(0, line->size() - 1) : *line;
    begin_ = scanned_ = begin_ + line->size();
    if (++line_ == 1) text = without_byte_order_mark(text);
    if (!blank(text)) return text;
  }
  return std::nullopt;
}

std::optional<Value> LineReader::next() {
  const std::optional<std::string_view> text = next_text();
  return text ? std::optional(parse_line(*text, name_, line_)) : std::nullopt;
}

Value parse_line(std::string_view text, const std::string& name, std::uint64_t line) {
  try {
    return parse_at(text, name, line, Limits{.max_bytes = kLongestRecord});
  } catch (const Error& e) {
    const std::string message = e.what();
    if (message.find(": unexpected end of input") == std::string::npos) throw;
    throw Error(message + "; a record is one line, or an element of an array", e.code());
  }
}

}  // namespace fp8::json
