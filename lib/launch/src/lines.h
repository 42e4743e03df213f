/// Line buffering of a command's output: whole lines of its standard output, the tail of its standard error.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fp8::launch {

/// Buffers an incomplete last line until its newline arrives.
class WholeLines {
 public:
  /// Adds bytes; returns the whole lines so far, valid until the next call. A line above 64 MiB is returned in pieces.
  std::string_view add(std::string_view bytes);
  /// The buffered incomplete line: with a newline when `keep`, else empty. Valid until the next call.
  std::string_view rest(bool keep);

 private:
  std::string given_;  // returned by the last call
  std::string held_;   // no newline in it
};

/// Keeps the last lines of a stream.
class Tail {
 public:
  /// Adds bytes.
  void add(std::string_view bytes);
  /// The last 20 lines, 8 KiB at most, without newlines and without empty lines at either end.
  std::vector<std::string> lines() const;

 private:
  std::string text_;
};

}  // namespace fp8::launch
