/// Output of a tool: results on standard output, every write checked; progress and colours on terminals.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::cli {

/// Results on standard output. Each call writes at once. Throws Error `standard output: reason` when a write fails;
/// when the reader has closed the pipe it throws BrokenPipe, on which run() exits quietly.
class Output {
 public:
  /// Writes to descriptor `fd`, which the caller closes.
  explicit Output(int fd = 1) : fd_(fd) {}
  /// Writes `text` unchanged.
  void text(std::string_view text);
  /// Writes `line` and a newline.
  void line(std::string_view line);
  /// Writes one JSON value as one line.
  void json(const json::Value& value);

 private:
  int fd_;
};

/// A progress line on standard error, overwritten in place. Silent when quiet or when standard error is not a terminal.
class Progress {
 public:
  /// `quiet` is the tool's --quiet.
  explicit Progress(bool quiet);
  /// Erases the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Whether progress is shown.
  bool shown() const { return shown_; }
  /// Shows `text`, cut to the width of the terminal, at most ten times a second.
  void update(std::string_view text);
  /// Erases the line and moves the cursor to the first column.
  void done();

 private:
  bool shown_;
  bool dirty_ = false;
  std::chrono::steady_clock::time_point last_{};
};

/// Terminal colours; disabled where unsupported.
struct Style {
  bool on = false;  ///< whether text is coloured

  /// For standard output: on if it is a terminal and neither NO_COLOR nor TERM=dumb is set. Always off under mpirun,
  /// where a redirected output looks like a terminal.
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

/// A table of left-aligned text columns, separated by two spaces; columns of numbers only are right-aligned. The first
/// row is the heading. Widths count UTF-8 characters. Ends in a newline.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace fp8::cli
