// Texts of states.
#include "display.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/text.h"
#include "fp8/cli/run.h"

namespace fp8::display {
namespace {

using launch::RunEvent;
using launch::RunState;
using launch::RunStatus;

constexpr int kDigits = 5;

// ", step 20 of 100, loss 2.31, held-out loss 2.4", without what is unknown.
std::string progress_of(const RunStatus& s) {
  std::string text;
  if (s.step > 0) text += ", step " + std::to_string(s.step);
  if (s.step > 0 && s.steps > s.step) text += " of " + std::to_string(s.steps);
  if (std::isfinite(s.loss)) text += ", loss " + format_short(s.loss, kDigits);
  if (std::isfinite(s.held_out)) text += ", held-out loss " + format_short(s.held_out, kDigits);
  return text;
}

std::string ended_text(const RunStatus& s) {
  const std::string time = " in " + human_seconds(s.seconds);
  std::string text = launch::name_of(s.state);
  if (s.state == RunState::finished) return text + time + progress_of(s);
  if (s.state == RunState::stopped) text += progress_of(s);
  if (!s.reason.empty()) text += ": " + s.reason;
  if (!s.tail.empty()) text += ": " + s.tail;
  return text;
}

}  // namespace

std::string text_of(RunState state) {
  if (state == RunState::fresh) return "not started";
  if (state == RunState::unfinished) return "not finished";
  return launch::name_of(state);
}

std::string line_of(const RunStatus& s) {
  std::string text = s.run->name + ": ";
  if (s.state == RunState::fresh || s.state == RunState::unfinished) return text + text_of(s.state);
  if (s.skipped) return text + launch::name_of(s.state) + " earlier";
  if (s.state != RunState::running) return text + ended_text(s);
  return text + (s.from > 0 ? "resumed from step " + std::to_string(s.from) : "started") +
         (s.cores.empty() ? "" : " on core " + s.cores) +
         (s.attempt > 1 && !s.reason.empty() ? ", attempt " + std::to_string(s.attempt) + " after " + s.reason : "");
}

Display::Display(std::string tool, std::size_t runs, std::size_t ended, bool quiet)
    : tool_(std::move(tool)), runs_(runs), ended_(ended), quiet_(quiet), progress_(quiet) {}

void Display::update(const RunStatus& status, RunEvent event) {
  if (event == RunEvent::progress) return redraw();
  const auto at = std::find(running_.begin(), running_.end(), &status);
  if (event == RunEvent::ended) {
    if (at != running_.end()) running_.erase(at);
    if (status.state != RunState::stopped) ++ended_;
  } else if (at == running_.end()) {
    running_.push_back(&status);
  }
  const bool bad = status.state == RunState::failed || status.state == RunState::diverged;
  if (!quiet_ || bad) print(line_of(status));
}

void Display::note(const std::string& text) {
  if (!quiet_) print(text);
}

void Display::print(const std::string& text) {
  progress_.done();
  cli::print_note(tool_, text);
  redraw();
}

void Display::redraw() {
  if (!progress_.shown() || running_.empty()) return;
  std::string text;
  for (const RunStatus* s : running_)
    text += "  " + s->run->name + ": " + human_seconds(s->seconds) + progress_of(*s) + "\n";
  progress_.update(text + "  " + std::to_string(ended_) + " of " + std::to_string(runs_) + " runs have ended");
}

}  // namespace fp8::display
