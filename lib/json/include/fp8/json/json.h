/// Reading and writing strict JSON (RFC 8259) and JSON Lines. No comments, no byte order mark but at the beginning of a
/// file, no NaN, no trailing bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fp8/base/file.h"
#include "fp8/json/value.h"

namespace fp8::json {

/// Bounds on untrusted text.
struct Limits {
  int max_depth = 64;                             ///< nesting of arrays and objects
  std::size_t max_bytes = std::size_t{1} << 30U;  ///< length of the text
};

/// Parses exactly one value. Throws Error `name: line L column C: reason` (columns are bytes) for empty text, duplicate
/// keys, invalid UTF-8, numbers beyond double, trailing bytes and text beyond `limits`.
Value parse(std::string_view text, const std::string& name, const Limits& limits = {});

/// Parses a whole file; errors name `path`.
Value parse_file(const std::string& path, const Limits& limits = {});

/// parse_file() for a file that is an object, such as "a configuration" in `what`. Throws Error `path: WHAT is a JSON
/// object, ...` for text that begins as none does, such as YAML.
Value parse_object_file(const std::string& path, const std::string& what, const Limits& limits = {});

/// One line when `indent` < 0, else one member per line, indented by `indent` spaces per level. Floats are printed as
/// the shortest decimal that reads back to the same bits, always in float form (1.0); non-finite values become null.
/// Invalid UTF-8 becomes U+FFFD. Deterministic.
std::string dump(const Value& value, int indent = -1);

/// Parses exactly one value, which begins at line `line` of `name`, like LineReader::next(). If it ends too early, the
/// error says that a record is one line or the element of an array.
Value parse_line(std::string_view text, const std::string& name, std::uint64_t line);

/// Reader of JSON Lines. Empty lines are skipped; a line may be up to 64 MiB long.
class LineReader {
 public:
  /// Reads the file at `path`.
  explicit LineReader(const std::string& path, const File::Waiting& waiting = {});
  /// Reads an open descriptor, which the caller closes (0 for standard input), after the bytes `begun`, which the
  /// caller has read from it; `name` is for messages.
  LineReader(int fd, std::string name, std::string begun = {});

  /// The next value, or nothing at the end. After the end, a further call reads what was appended since. Throws Error
  /// `name: line L column C: reason`.
  std::optional<Value> next();
  /// Returns the text of the next line without parsing it, for parse_line(). It is valid until the next call.
  std::optional<std::string_view> next_text();
  /// Number of the line that next() or next_text() returned last, counted from 1; 0 before the first.
  std::uint64_t line() const { return line_; }

 private:
  std::optional<std::string_view> next_line();
  bool fill();

  File file_;  // open only when this reader opened it
  int fd_;
  std::string name_;
  std::string buffer_;
  std::size_t begin_ = 0;    // first byte of the buffer that is not consumed
  std::size_t scanned_ = 0;  // no newline before this byte
  bool whole_ = true;        // whether the line last returned ended in a newline
  std::uint64_t line_ = 0;
};

}  // namespace fp8::json
