// Profiles of steps: the operations of the requested steps, as a table and as a trace. Private to the crate.
#pragma once

#include <string>

#include "fp8/device/profile.h"
#include "fp8/gemm/gemm.h"
#include "fp8/settings/config.h"

namespace fp8::train {

using device::Context;
using dtype::DType;

// Limits of the device of a rank; on the host, with the threads of this rank.
struct Limits {
  double bytes_per_s = 0;  // speed of memory, of a triad on the host or a copy on a GPU
  double flop_per_s = 0;   // speed of a matrix multiplication
};

// Measures the fastest of several passes over memory, and of several GEMMs [rows, inner] x [inner, columns] in `type`,
// on the device of `at`. Throws Error when its memory is insufficient.
Limits probe_limits(const Context& at, dtype::DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner);

// Seconds of a step on a rank.
struct StepTimes {
  double computing = 0;      // everything but communication
  double communicating = 0;  // with waits for other ranks
  double busy = 0;           // StepResult::busy_seconds
};

// Collects the operations of the requested steps.
class Profiler {
 public:
  explicit Profiler(const settings::RunConfig& config) : first_(config.profile_first), last_(config.profile_last) {}
  // The profile for the context of the run; null if no step is to be profiled.
  device::Profile* profile() { return last_ > 0 ? &profile_ : nullptr; }
  // Around step `step`, counted from 1, with its StepResult::busy_seconds.
  void begin_step(std::int64_t step);
  void end_step(double busy);
  // Whether steps were profiled and `step` is the last of them or later.
  bool complete(std::int64_t step) const { return steps_ > 0 && step >= last_; }
  bool empty() const { return steps_ == 0; }
  // The time of a step by kind of work, one line each; without shares of limits that are 0.
  std::string table(const Limits& limits) const;
  // The mean of the steps.
  StepTimes times() const;
  // Events of all operations of this rank and of the steps, lines for json::trace_file(). `row`: the name of the rank's
  // row, or empty for its number.
  std::string trace_lines(int rank, const std::string& row, std::int64_t origin) const;
  // "profile-3-5.json".
  std::string file_name() const;
  // Start of the first profiled step, in nanoseconds of this rank's clock.
  std::int64_t origin() const { return step_spans_.empty() ? 0 : step_spans_.front().begin; }
  // Discards the operations, which are reported once.
  void clear();

 private:
  std::int64_t first_, last_, steps_ = 0, begin_ = 0;
  double busy_ = 0;  // seconds of all profiled steps
  device::Profile profile_;
  std::vector<device::Span> step_spans_;  // the steps themselves; their names are empty
};

}  // namespace fp8::train
