// Live view of a run: one line, or several lines with the loss curve.
#include "live.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <thread>

#include "fp8/base/clock.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/log/follow.h"
#include "fp8/log/picture.h"
#include "fp8/log/summary.h"

namespace fp8::report {
namespace {

std::string short_loss_text(double loss) { return format_short(loss, 5); }

// Parts of the status line, most important first.
std::vector<std::string> facts(const log::Run& run, double silent) {
  constexpr double kLongSilence = 10;
  const log::Progress p = log::progress(run);
  std::vector<std::string> all;
  if (run.steps.empty()) return {"no step yet"};
  std::string steps = "step " + std::to_string(p.steps);
  if (p.planned && *p.planned > 0) {
    steps += " of " + std::to_string(*p.planned) + " (" + std::to_string(100 * p.steps / *p.planned) + " %)";
  }
  all.push_back(steps);
  all.push_back("loss " + (p.loss ? short_loss_text(*p.loss) : "not finite"));
  if (p.eval_loss) all.push_back("evaluation " + short_loss_text(*p.eval_loss));
  if (p.tokens_per_s)
    all.push_back(human_count(static_cast<std::uint64_t>(std::max(*p.tokens_per_s, 0.0))) + " tokens/s");
  if (p.step_s) all.push_back(human_seconds(*p.step_s) + "/step");
  if (p.seconds_left && !run.finished) all.push_back(human_seconds(*p.seconds_left) + " left");
  if (!run.restarts.empty()) all.push_back(counted(run.restarts.size(), "restart"));
  if (p.checkpoint) all.push_back("saved at " + std::to_string(*p.checkpoint));
  if (const auto slow = log::find_slow_rank(run)) all.push_back(terminal_safe(text_of(*slow)));
  if (run.warnings > 0) all.push_back(counted(run.warnings, "warning"));
  if (run.finished) all.push_back(run.reason.empty() ? "ended" : "ended: " + terminal_safe(run.reason));
  if (!run.finished && silent > kLongSilence) all.push_back("no record for " + human_seconds(silent));
  return all;
}

std::string joined_facts(const std::vector<std::string>& parts, const std::string& between) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : between) + part;
  return all;
}

std::string bar(const log::Progress& p, std::size_t width) {
  if (!p.planned || *p.planned <= 0) return "";
  const double share = std::clamp(static_cast<double>(p.steps) / static_cast<double>(*p.planned), 0.0, 1.0);
  const auto full = static_cast<std::size_t>(std::lround(share * static_cast<double>(width)));
  std::string text;
  for (std::size_t i = 0; i < width; ++i) text += i < full ? "\u2588" : "\u2591";
  return text + "\n";
}

// Joins the parts into lines no wider than the terminal.
std::string wrapped_parts(const std::vector<std::string>& parts, std::size_t width) {
  std::string text, line;
  for (const std::string& part : parts) {
    if (!line.empty() && line.size() + 3 + part.size() > width) {
      text += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : "   ") + part.substr(0, width);
  }
  return text + line + "\n";
}

std::array<int, 2> terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
  return {std::clamp<int>(size.ws_col, 40, 200), size.ws_row};
}

// Lines that the next call of show() overwrites.
class Screen {
 public:
  void show(const std::string& text) {
    std::string out;
    if (lines_ > 0) out += "\x1b[" + std::to_string(lines_) + "A\r";
    for (const char c : text) out += c == '\n' ? "\x1b[K\n" : std::string(1, c);
    out_.text(out + "\x1b[J");
    lines_ = std::count(text.begin(), text.end(), '\n');
  }

 private:
  cli::Output out_;
  std::ptrdiff_t lines_ = 0;
};

std::string screen_of(const log::Run& run, double silent) {
  constexpr int kMostRows = 16, kFewestRows = 6, kOtherRows = 8;
  const auto [columns, rows] = terminal_size();
  const auto width = static_cast<std::size_t>(columns - 1);
  std::string text =
      terminal_safe(run.name) + "\n" + bar(log::progress(run), width) + wrapped_parts(facts(run, silent), width);
  const int plot_rows = std::min(rows - kOtherRows, kMostRows);
  const bool has_loss = std::find(run.metrics.begin(), run.metrics.end(), "loss") != run.metrics.end();
  if (has_loss && plot_rows >= kFewestRows) {
    plot::Picture picture = log::picture({&run, 1}, "loss");
    picture.curves[0].marks.clear();  // their lines would not fit
    text += plot::terminal_plot(picture, columns - 1, plot_rows, cli::Style::for_stdout().on);
  }
  return text;
}

// Whether the run has ended. An end record before the last planned step may be the end of a phase or a stop before a
// restart; it counts as the end when no record follows for `patience` seconds.
bool over(const log::Run& run, double silent, double patience) {
  if (!run.finished) return false;
  return !run.planned_steps || (!run.steps.empty() && run.steps.back() >= *run.planned_steps) || silent > patience;
}

}  // namespace

void follow(const std::string& path, double interval) {
  constexpr double kLook = 0.25, kPatience = 10;
  const char* term = std::getenv("TERM");
  const bool in_place = ::isatty(STDOUT_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
  log::Follower follower(path, {.all = false, .metrics = log::summary_metrics()});
  Screen screen;
  cli::Output out;
  Clock::time_point news = Clock::now();
  const auto show = [&](bool at_end) {
    const log::Run* run = follower.run();
    const double silent = seconds_since(news);
    if (in_place) return screen.show(run == nullptr ? terminal_safe(path) + ": no log yet\n" : screen_of(*run, silent));
    if (run == nullptr) return out.line(terminal_safe(path) + ": no log yet");
    out.line((path == "-" ? "" : terminal_safe(run->name) + ": ") + joined_facts(facts(*run, silent), ", ") +
             (at_end && !run->finished ? ", no end record" : ""));
  };
  const double look = std::min(kLook, interval);
  for (Clock::time_point shown{}; !follower.ended();) {
    const Clock::time_point before = Clock::now();
    if (follower.poll(static_cast<int>(std::ceil(1000 * look)))) news = Clock::now();
    const log::Run* run = follower.run();
    if (run != nullptr && over(*run, seconds_since(news), std::max(kPatience * std::min(interval, 1.0), look))) break;
    if (seconds_since(shown) >= interval) {
      shown = Clock::now();
      show(false);
    }
    const double left = look - seconds_since(before);
    if (left > 0 && !follower.ended()) std::this_thread::sleep_for(std::chrono::duration<double>(left));
  }
  show(true);
}

}  // namespace fp8::report
