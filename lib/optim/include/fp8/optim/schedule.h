/// Learning rate by step. A schedule is a value and part of the run's configuration.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace fp8::optim {

/// Shape after warmup.
enum class ScheduleKind : std::uint8_t { cosine, linear, constant, wsd };

/// Names as in --schedule, in the order of ScheduleKind.
std::span<const std::string_view> schedule_names();

/// Step t counts from 0, of `steps`. t < warmup: lr (t+1)/warmup. Then with p = (t - warmup) / (steps - warmup): cosine
/// min + (lr - min)(1 + cos(pi p))/2; linear lr + (min - lr) p; constant lr; wsd constant, then linear to min over the
/// last decay_steps.
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;  ///< shape
  double lr = 3e-4;                          ///< peak
  double min_lr = 0;                         ///< final rate
  std::int64_t warmup = 0;                   ///< steps
  std::int64_t steps = 0;                    ///< number of steps of the whole run
  std::int64_t decay_steps = 0;              ///< steps of decay (wsd only)

  /// Rate used for the update of step t.
  double rate(std::int64_t t) const;
};

}  // namespace fp8::optim
