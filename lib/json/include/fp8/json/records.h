/// Records of JSON Lines, or the elements of one JSON array, read from a file or a pipe as text that is not yet parsed,
/// so that several threads can parse. Memory is bounded by the largest record, 64 MiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/json/json.h"

namespace fp8::json {

/// Arrangement of the records in a file.
enum class Layout : std::uint8_t {
  lines,       ///< one value per line
  array,       ///< one array, whose elements are the records
  by_content,  ///< array if the text begins with `[` and then `{` or `]`; with the extension .json, if it begins with
               ///< `[`; else lines
};

/// One record.
struct Record {
  std::string text;        ///< one value, unless it is not valid JSON
  std::uint64_t line = 0;  ///< line at which the text begins, from 1
};

/// Whether `head`, the first bytes of `name`, begin an array of records, as Layout::by_content.
bool begins_array(std::string_view head, const std::string& name);

/// Reader of records.
class RecordReader {
 public:
  /// Opens `path`; `-` is standard input. `waiting` as in File::open_read().
  RecordReader(const std::string& path, Layout layout, const File::Waiting& waiting = {});
  ~RecordReader();
  RecordReader(RecordReader&&) noexcept;
  RecordReader& operator=(RecordReader&&) noexcept;

  /// The path, or "standard input": for messages.
  const std::string& name() const;
  /// The first bytes, up to 64 KiB. Call before the first next().
  std::string_view head() const;
  /// Ends the records after the first `records`; what follows is not read. Call before the first next().
  void end_after(std::int64_t records);
  /// The next record; nothing at the end. An element of an array may be any text that ends where its brackets do.
  /// Throws Error `name: line N: reason` if the array does not end, or has no comma between two elements.
  std::optional<Record> next();
  /// Records of about `bytes` bytes together, at least one; none at the end. Throws as next(), after the records before
  /// the error were returned.
  std::vector<Record> next_batch(std::size_t bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Parses a record of `name`. Throws Error `name: line L column C: reason`.
inline Value parse(const Record& record, const std::string& name) { return parse_line(record.text, name, record.line); }

/// Passes batches of about `bytes` bytes to `add`, until there are no more or it returns false. If the input cannot be
/// read, calls `finish` before it throws the error, so that errors in earlier records come first.
template <class Add, class Finish>
void read_batches(RecordReader& reader, std::size_t bytes, const Add& add, const Finish& finish) {
  for (;;) {
    std::vector<Record> records;
    try {
      records = reader.next_batch(bytes);
    } catch (const Error&) {
      finish();
      throw;
    }
    if (records.empty() || !add(std::move(records))) return;
  }
}

}  // namespace fp8::json
