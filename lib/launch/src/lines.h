/// What becomes of a command's output on its way: whole lines of one stream, the last lines of the other. No files
/// here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fp8::launch {

/// Holds back the last line until it is whole.
class WholeLines {
 public:
  /// Takes bytes; returns the whole lines so far, valid until the next call. A line above 64 MiB is returned in pieces.
  std::string_view add(std::string_view bytes);
  /// What is left at the end: with a newline when `keep`, else nothing. Valid until the next call.
  std::string_view rest(bool keep);

 private:
  std::string given_;  // returned by the last call
  std::string held_;   // no newline in it
};

/// Remembers the end of a text.
class Tail {
 public:
  /// Takes bytes.
  void add(std::string_view bytes);
  /// The last 20 lines at most, 8 KiB at most, without newlines and without empty lines at either end.
  std::vector<std::string> lines() const;

 private:
  std::string text_;
};

}  // namespace fp8::launch
