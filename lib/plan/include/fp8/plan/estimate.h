/// A run planned on a machine: memory of the rank that needs the most, time of a step as an interval, and speed
/// relative to bf16.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fp8/json/value.h"
#include "fp8/plan/machine.h"
#include "fp8/plan/price.h"
#include "fp8/plan/run.h"

namespace fp8::plan {

/// Combinations of the slow and the fast value of each kind of figure, the first with all slow, the last with all fast.
inline constexpr std::size_t kCorners = 32;

/// Combination `number`.
Corner corner_of(std::size_t number);

/// Times of a step.
struct Speed {
  std::array<double, kCorners> seconds{};  ///< of a step, by combination
  Times slow, fast;                        ///< terms of the slowest and the fastest combination
  std::map<std::int64_t, Range> units;     ///< seconds of a unit in a micro-batch, see units_of()
  /// Seconds of a step.
  Range step() const { return {seconds.front(), seconds.back()}; }
};

/// A planned run.
struct Estimate {
  Run run;
  JobMemory memory;
  std::optional<bool> fits;    ///< nothing: the memory of the machine is not known
  std::optional<Speed> speed;  ///< nothing: no machine
  std::optional<Range> ratio;  ///< speed relative to bf16
};

/// The machine of a plan: nothing for memory alone.
using MaybeMachine = std::optional<Machine>;

/// What a plan takes for granted besides the settings of the run.
struct Assumptions {
  double imbalance = 1;    ///< rows of the busiest rank's experts over the mean
  Habits habits{};         ///< of the program that would run it
  int virtual_stages = 1;  ///< stages of each rank of a pipeline
  bool own = true;         ///< whether fp8-step would run it, which emulates some recipes on all GPUs
};

/// Bytes that a rank of a run can use, whose host its other ranks may share.
std::size_t memory_of_rank(const Machine& machine, const Run& run);

/// The memory of a run on `device`, with blocks of logits that fit the machine's GPUs, if it is known.
JobMemory memory_on(const Run& run, device::DeviceType device, const MaybeMachine& machine);

/// Memory and, with a machine, speed of a run; without ratio.
Estimate estimate(Run run, device::DeviceType device, const MaybeMachine& machine, const Assumptions& assumed);

/// The times of a step whose memory is not asked for; unless `all`, of the slowest and the fastest combination alone.
Speed speed_of(const Run& run, const Machine& machine, const Assumptions& assumed, bool all = true);

/// The speed of `one` relative to `base`: the least and the largest over combinations that both share.
Range ratio_of(const Speed& one, const Speed& base);

/// Tokens of a rank in a second.
Range tokens_per_rank(const Run& run, const Speed& speed);

/// Days in which all ranks of a run compute so many tokens.
Range days_of(const Run& run, const Speed& speed, std::int64_t tokens);

/// What limits the speed: the largest of GEMMs, attention, memory, launches, communication, bubble and update.
std::string limit_of(const Speed& speed);

/// {"type":"plan"}, see fp8-plan(1).
json::Value record_of(const Estimate& e, const MaybeMachine& machine, std::int64_t tokens);

}  // namespace fp8::plan
