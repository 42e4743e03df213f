/// What a tool shows: results on standard output, every write checked; progress and colour where they belong.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::cli {

/// Results on standard output. Each call is written at once. Throws Error `standard output: reason` when a write fails;
/// when the reader has gone away it throws what run() turns into a quiet end.
class Output {
 public:
  /// Writes to descriptor `fd`, which stays the caller's.
  explicit Output(int fd = 1) : fd_(fd) {}
  /// Writes `text` as it is.
  void text(std::string_view text);
  /// Writes `line` and a newline.
  void line(std::string_view line);
  /// Writes one JSON value as one line.
  void json(const json::Value& value);

 private:
  int fd_;
};

/// One changing line on standard error. Silent when quiet or when standard error is no terminal.
class Progress {
 public:
  /// `quiet` is the tool's --quiet.
  explicit Progress(bool quiet);
  /// Erases the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Whether anything is shown.
  bool shown() const { return shown_; }
  /// Shows `text`, cut to the width of the terminal, at most ten times a second.
  void update(std::string_view text);
  /// Erases the line. What follows begins in the first column.
  void done();

 private:
  bool shown_;
  bool dirty_ = false;
  std::chrono::steady_clock::time_point last_{};
};

/// Colours, or nothing where they do not belong.
struct Style {
  bool on = false;  ///< whether text is coloured

  /// For standard error: a terminal, and neither NO_COLOR nor TERM=dumb.
  static Style for_stderr();
  /// For standard output: as above, and never under mpirun, which makes a file look like a terminal.
  static Style for_stdout();

  /// `text` in bold.
  std::string bold(std::string_view text) const;
  /// `text` in grey.
  std::string dim(std::string_view text) const;
  /// `text` in red.
  std::string red(std::string_view text) const;
  /// `text` in green.
  std::string green(std::string_view text) const;
  /// `text` in yellow.
  std::string yellow(std::string_view text) const;
};

/// Width of the terminal behind standard error, between 40 and 200; 80 where there is none.
int terminal_columns();

/// A table of left-aligned text columns, two spaces apart; columns whose cells are all numbers are right-aligned. The
/// first row is the heading. Widths count UTF-8 characters. Ends in a newline.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace fp8::cli
