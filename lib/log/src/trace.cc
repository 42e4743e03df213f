// Writes a run as a timeline. The log has no timestamps: time is the sum of the logged durations.
#include "fp8/json/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "export_piece.h"
#include "fp8/base/error.h"
#include "fp8/log/export.h"

namespace fp8::log {
namespace {

using json::TraceEvent;
using json::TraceKind;

constexpr double kMicroseconds = 1e6;
constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();  // above every step number
enum Line : std::uint8_t { steps, saves, evaluations, precision };

// Buffers lines and writes them in pieces.
class TraceWriter {
 public:
  explicit TraceWriter(const Sink& sink) : sink_(sink), piece_(json::kTraceBegin) {}
  void write(const TraceEvent& event) {
    if (any_) piece_ += json::kTraceBetween;
    any_ = true;
    piece_ += json::trace_line(event);
    if (piece_.size() < kExportPiece) return;
    sink_(piece_);
    piece_.clear();
  }
  void end() { sink_(piece_.append(json::kTraceEnd)); }

 private:
  const Sink& sink_;
  std::string piece_;
  bool any_ = false;
};

double finite_or_zero(double v) { return std::isfinite(v) ? v : 0; }

// Writes the events of one run.
class Timeline {
 public:
  Timeline(const Run& run, std::int64_t process, TraceWriter& writer)
      : run_(run), process_(process), writer_(writer), restart_(run.restarts.begin()) {}

  void write() {
    const std::span<const double> seconds = run_.find("step_s");
    if (!run_.steps.empty() && seconds.empty()) {
      throw Error(run_.path + ": has no step durations (step_s), which a timeline needs");
    }
    name(TraceKind::process, run_.name, steps);
    name(TraceKind::thread, "steps", steps);
    name(TraceKind::thread, "saves", saves);
    name(TraceKind::thread, "evaluations", evaluations);
    name(TraceKind::thread, "precision", precision);
    between(0, run_.steps.empty() ? kEnd : run_.steps.front());
    for (std::size_t i = 0; i < run_.steps.size(); ++i) step(i, finite_or_zero(seconds[i]) * kMicroseconds);
    phase_until(run_.steps.size());
  }

 private:
  void name(TraceKind kind, std::string_view text, Line line) {
    writer_.write({.name = text, .category = "", .process = process_, .thread = line, .kind = kind});
  }
  void bar(std::string_view text, Line line, double begin, double duration, json::Object arguments = {}) {
    writer_.write({.name = text,
                   .category = "run",
                   .process = process_,
                   .thread = line,
                   .begin_us = begin,
                   .duration_us = duration,
                   .arguments = std::move(arguments)});
  }
  void mark(std::string_view text, Line line, json::Object arguments = {}) {
    writer_.write({.name = text,
                   .category = "run",
                   .process = process_,
                   .thread = line,
                   .begin_us = now_,
                   .arguments = std::move(arguments),
                   .kind = TraceKind::mark});
  }

  void step(std::size_t i, double duration) {
    const std::int64_t number = run_.steps[i];
    for (; restart_ != run_.restarts.end() && *restart_ <= number; ++restart_) mark("restart", steps);
    if (phase_ + 1 < run_.phases.size() && run_.phases[phase_ + 1].first <= i) phase_until(i);
    json::Object arguments;
    if (run_.tokens[i] >= 0) arguments.set("tokens", run_.tokens[i]);
    for (const Column& c : run_.columns) {
      if (std::isfinite(c.values[i])) arguments.set(c.name, c.values[i]);
    }
    bar("step " + std::to_string(number), steps, now_, duration, std::move(arguments));
    if (const std::span<const double> waits = run_.find("data_wait_s"); !waits.empty() && waits[i] > 0) {
      bar("waiting for data", steps, now_, std::min(finite_or_zero(waits[i]) * kMicroseconds, duration));
    }
    now_ += duration;
    for (const char* metric : {"loss", "grad_norm", "tokens_per_s"}) curve(metric, i);
    between(number, i + 1 < run_.steps.size() ? run_.steps[i + 1] : kEnd);
  }

  void curve(const char* metric, std::size_t i) {
    const std::span<const double> values = run_.find(metric);
    if (values.empty() || !std::isfinite(values[i])) return;
    json::Object value;
    value.set(metric, values[i]);
    writer_.write({.name = metric,
                   .category = "run",
                   .process = process_,
                   .begin_us = now_,
                   .arguments = std::move(value),
                   .kind = TraceKind::count});
  }

  // Writes the evaluations and saves of the steps [first, until).
  void between(std::int64_t first, std::int64_t until) {
    for (auto e = run_.evaluations.lower_bound(first); e != run_.evaluations.lower_bound(until); ++e) {
      json::Object arguments;
      if (std::isfinite(e->second.loss)) arguments.set("loss", e->second.loss);
      if (std::isfinite(e->second.seconds)) {
        bar("evaluation", evaluations, now_, e->second.seconds * kMicroseconds, std::move(arguments));
        now_ += e->second.seconds * kMicroseconds;
      } else {
        mark("evaluation", evaluations, std::move(arguments));
      }
    }
    for (auto s = run_.checkpoints.lower_bound(first); s != run_.checkpoints.lower_bound(until); ++s) {
      bar("save " + std::to_string(s->first), saves, now_, finite_or_zero(s->second.seconds) * kMicroseconds);
      now_ += finite_or_zero(s->second.waited) * kMicroseconds;
    }
  }

  // Ends the bar of the phase before step index `end` and begins the next one.
  void phase_until(std::size_t end) {
    if (end == 0 || phase_ >= run_.phases.size()) return;
    const Phase& phase = run_.phases[phase_++];
    const std::string text = phase.precision + (phase.recipe.empty() ? "" : " " + phase.recipe);
    if (!text.empty()) bar(text, precision, phase_began_, now_ - phase_began_);
    phase_began_ = now_;
  }

  const Run& run_;
  std::int64_t process_;
  TraceWriter& writer_;
  std::vector<std::int64_t>::const_iterator restart_;
  std::size_t phase_ = 0;
  double now_ = 0, phase_began_ = 0;
};

}  // namespace

void write_trace(std::span<const Run> runs, const Sink& sink) {
  TraceWriter writer(sink);
  for (std::size_t i = 0; i < runs.size(); ++i) Timeline(runs[i], static_cast<std::int64_t>(i + 1), writer).write();
  writer.end();
}

}  // namespace fp8::log
