// Standard output, progress, colour.
#include "fp8/cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "broken_pipe.h"
#include "fp8/base/characters.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::cli {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets the environment
  return value != nullptr && *value != '\0';
}

bool dumb_terminal() {
  const char* term = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe)
  return term == nullptr || std::string_view(term) == "dumb";
}

// Height of the terminal behind standard error; 24 where there is none.
std::size_t terminal_rows() {
  struct winsize w {};
  return ::ioctl(2, TIOCGWINSZ, &w) != 0 || w.ws_row == 0 ? 24 : w.ws_row;
}

// The first `columns` characters of `text`.
std::string_view cut(std::string_view text, std::size_t columns) {
  std::size_t at = 0;
  for (std::size_t seen = 0; at < text.size(); ++at) {
    if (begins_character(text[at]) && seen++ == columns) break;
  }
  return text.substr(0, at);
}

std::string painted(bool on, const char* code, std::string_view text) {
  return on ? "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m" : std::string(text);
}

bool is_number(const std::string& cell) { return cell.empty() || cell == "-" || parse_double(cell).has_value(); }

}  // namespace

void Output::text(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EPIPE) throw BrokenPipe{};
    if (n < 0) throw_errno("standard output", "", errno);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void Output::line(std::string_view line) { text(std::string(line) + '\n'); }

void Output::json(const json::Value& value) { line(json::dump(value)); }

Progress::Progress(bool quiet, std::string tool, std::chrono::milliseconds interval)
    : in_place_(::isatty(2) == 1 && !dumb_terminal()), tool_(std::move(tool)), interval_(interval) {
  shown_ = !quiet && (in_place_ || !tool_.empty());
  if (!in_place_) last_ = std::chrono::steady_clock::now();
}

Progress::~Progress() { done(); }

void Progress::update(std::string_view text) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (in_place_ ? lines_ > 0 && now - last_ < std::chrono::milliseconds(100) : now - last_ < interval_) return;
  last_ = now;
  if (in_place_) return overwrite(text);
  const std::string line = terminal_safe(tool_ + ": " + std::string(text)) + "\n";
  (void)std::fwrite(line.data(), 1, line.size(), stderr);  // a failure cannot be reported
  (void)std::fflush(stderr);
}

void Progress::overwrite(std::string_view text) {
  std::string shown = erased();
  // One column stays free: a full line would wrap. A line above the top of the terminal could not be erased.
  const std::size_t columns = static_cast<std::size_t>(terminal_columns()) - 1, rows = terminal_rows();
  while (lines_ < rows) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string safe = terminal_safe(text.substr(0, end));
    shown += (lines_ == 0 ? "" : "\n") + std::string(cut(safe, columns));
    ++lines_;
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
  }
  (void)std::fwrite(shown.data(), 1, shown.size(), stderr);  // a failure cannot be reported
  (void)std::fflush(stderr);
}

std::string Progress::erased() {
  const std::size_t lines = std::exchange(lines_, 0);
  return lines > 1 ? "\x1b[" + std::to_string(lines - 1) + "A\r\x1b[J" : "\r\x1b[K";
}

void Progress::done() {
  if (lines_ == 0) return;
  (void)std::fputs(erased().c_str(), stderr);
  (void)std::fflush(stderr);
}

bool stdout_is_terminal() {
  constexpr std::array kOfLaunchers = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD", "SLURM_STEP_ID"};
  return ::isatty(1) == 1 && std::none_of(kOfLaunchers.begin(), kOfLaunchers.end(), is_set);
}

Style Style::for_stdout() { return {stdout_is_terminal() && !is_set("NO_COLOR") && !dumb_terminal()}; }

std::string Style::bold(std::string_view text) const { return painted(on, "1", text); }
std::string Style::dim(std::string_view text) const { return painted(on, "2", text); }
std::string Style::red(std::string_view text) const { return painted(on, "31", text); }
std::string Style::green(std::string_view text) const { return painted(on, "32", text); }
std::string Style::yellow(std::string_view text) const { return painted(on, "33", text); }

int terminal_columns() {
  struct winsize w {};
  if (::ioctl(2, TIOCGWINSZ, &w) != 0 || w.ws_col == 0) return 80;
  return std::clamp(static_cast<int>(w.ws_col), 40, 200);
}

std::string wrapped(const std::string& text, std::size_t columns) {
  std::string out;
  for (std::size_t from = 0, end = 0; from < text.size(); from = end + 1) {
    end = std::min(text.find('\n', from), text.size());
    std::string rest = text.substr(from, end - from);
    const std::string indent = rest.substr(0, std::min(rest.find_first_not_of(' '), rest.size())) + "  ";
    for (std::size_t least = indent.size() - 2; width_of(rest) > columns; least = indent.size()) {
      const std::size_t at = rest.rfind(' ', columns);
      if (at == std::string::npos || at <= least) break;  // one long word
      out += rest.substr(0, at) + "\n";
      rest = indent + rest.substr(at + 1);
    }
    out += rest + "\n";
  }
  return out;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  std::vector<bool> numeric;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    numeric.resize(widths.size(), true);
    for (std::size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], width_of(row[c]));
      if (&row != &rows.front() && !is_number(row[c])) numeric[c] = false;
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - width_of(row[c]), ' ');
      line += (c == 0 ? "" : "  ") + (numeric[c] ? padding + row[c] : row[c] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace fp8::cli
