/// Learning rate by step. A schedule is a value and part of the run's configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace fp8::optim {

/// Shape after warmup.
enum class ScheduleKind : std::uint8_t { cosine, linear, constant, wsd };

/// Shape of the decrease at the end of ScheduleKind::wsd, of the share p of its steps: cosine (1 + cos(pi p))/2, linear
/// 1 - p, sqrt the root of 1 - p, one_minus_sqrt 1 - the root of p.
enum class DecayShape : std::uint8_t { linear, cosine, sqrt, one_minus_sqrt };

/// Names as in --schedule, in the order of ScheduleKind.
std::span<const std::string_view> schedule_names();
/// Names as in --decay-shape, in the order of DecayShape.
std::span<const std::string_view> decay_shape_names();

/// Step t counts from 0. t < warmup: lr (t+1)/warmup, or with warmup_from: warmup_from + (lr - warmup_from) t/warmup.
/// Then with p = (t - warmup) / (steps - warmup): cosine min + (lr - min)(1 + cos(pi p))/2; linear lr + (min - lr) p;
/// constant lr; wsd constant, then to min over the last decay_steps. From `steps` on: min_lr, unless constant.
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;     ///< shape
  double lr = 3e-4;                             ///< peak
  double min_lr = 0;                            ///< final rate
  std::int64_t warmup = 0;                      ///< steps
  std::optional<double> warmup_from = {};       ///< rate of step 0 of the warmup; without a value lr / warmup
  std::int64_t steps = 0;                       ///< number of steps after which the rate is min_lr
  std::int64_t decay_steps = 0;                 ///< steps of decay (wsd only)
  DecayShape decay_shape = DecayShape::linear;  ///< shape of the decay (wsd only)

  /// Rate used for the update of step t.
  double rate(std::int64_t t) const;
};

}  // namespace fp8::optim
