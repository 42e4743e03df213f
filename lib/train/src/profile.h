// --profile: which steps are profiled, and what is told of them. Private to the crate.
#pragma once

#include <string>

#include "fp8/device/profile.h"
#include "fp8/gemm/gemm.h"
#include "fp8/train/config.h"

namespace fp8::train {

// What this machine can do, found by a short probe with the threads of this rank.
struct Limits {
  double bytes_per_s = 0;  // of a triad in memory
  double flop_per_s = 0;   // of a matrix multiply
};

// Fastest of some passes over memory, and of some products [rows, inner] x [inner, columns] in `type`.
Limits probe_limits(dtype::DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner);

// Collects the operations of the steps asked for.
class Profiler {
 public:
  explicit Profiler(const RunConfig& config) : first_(config.profile_first), last_(config.profile_last) {}
  // For the context of the run; null when no step is to be profiled.
  device::Profile* profile() { return last_ > 0 ? &profile_ : nullptr; }
  // Around step `step`, counted from 1.
  void begin_step(std::int64_t step);
  void end_step();
  // Whether something was collected and `step` is the last one of it.
  bool complete(std::int64_t step) const { return steps_ > 0 && step >= last_; }
  bool empty() const { return steps_ == 0; }
  // Where the time of a step went, a line for each kind of work.
  std::string table(const Limits& limits) const;
  // Bars of all operations of this rank and of the steps, lines for json::trace_file().
  std::string trace_lines(int rank, std::int64_t origin) const;
  // "profile-3-5.json".
  std::string file_name() const;
  // Start of the first step, nanoseconds of this rank's clock.
  std::int64_t origin() const { return step_spans_.empty() ? 0 : step_spans_.front().begin; }
  // Forgets all: every step is told of once.
  void clear();

 private:
  std::int64_t first_, last_, steps_ = 0, begin_ = 0;
  device::Profile profile_;
  std::vector<device::Span> step_spans_;  // the steps themselves; their names are empty
};

}  // namespace fp8::train
