/// Output of a tool: results on standard output, every write checked; progress and colours on terminals.
#pragma once

#include <chrono>
#include <cstddef>
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

/// Progress on standard error. On a terminal it is one line or several, overwritten in place. Elsewhere it is silent,
/// unless the tool is long-running: then a line of its own at most every `interval`. Silent when quiet.
class Progress {
 public:
  /// `quiet` is the tool's --quiet; `tool` is the name of a long-running tool, before each line of its own. The first
  /// of these comes `interval` after this call.
  explicit Progress(bool quiet, std::string tool = "", std::chrono::milliseconds interval = std::chrono::seconds(30));
  /// Erases what is shown.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Whether progress is shown.
  bool shown() const { return shown_; }
  /// Shows `text`: on a terminal its lines, cut to the width and the height of the terminal, at most ten times a
  /// second; elsewhere one line when it is time.
  void update(std::string_view text);
  /// Erases what is shown and moves the cursor to the first column.
  void done();

 private:
  void overwrite(std::string_view text);
  std::string erased();
  bool shown_, in_place_;
  std::size_t lines_ = 0;  // on the terminal
  std::string tool_;
  std::chrono::milliseconds interval_;
  std::chrono::steady_clock::time_point last_{};
};

/// Whether standard output is a terminal of the user. Under mpirun and srun it is not: a redirected output looks like a
/// terminal there.
bool stdout_is_terminal();

/// Terminal colours; disabled where unsupported.
struct Style {
  bool on = false;  ///< whether text is coloured

  /// The style of standard output: on if stdout_is_terminal() and neither NO_COLOR nor TERM=dumb is set.
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

/// Lines of text, those of more than `columns` characters broken between words; the continuation of a line is indented
/// by two spaces more. Ends in a newline unless empty.
std::string wrapped(const std::string& text, std::size_t columns);

/// A table of left-aligned text columns, separated by two spaces; columns of numbers only are right-aligned. The first
/// row is the heading. Widths count UTF-8 characters. Ends in a newline.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace fp8::cli
