// Learning rates by step.
#include "fp8/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace fp8::optim {
namespace {

constexpr std::array<std::string_view, 4> kNames{"cosine", "linear", "constant", "wsd"};

/// Fraction of the way of t from begin to end, within [0, 1]; 1 if the interval is empty.
double progress(std::int64_t t, std::int64_t begin, std::int64_t end) {
  if (end <= begin) return 1;
  return std::clamp(static_cast<double>(t - begin) / static_cast<double>(end - begin), 0.0, 1.0);
}

}  // namespace

std::span<const std::string_view> schedule_names() { return kNames; }

double Schedule::rate(std::int64_t t) const {
  if (t < warmup) return lr * static_cast<double>(t + 1) / static_cast<double>(warmup);
  const double p = progress(t, warmup, steps);
  switch (kind) {
    case ScheduleKind::cosine:
      return min_lr + (lr - min_lr) * (1 + std::cos(std::numbers::pi * p)) / 2;
    case ScheduleKind::linear:
      return lr + (min_lr - lr) * p;
    case ScheduleKind::constant:
      return lr;
    case ScheduleKind::wsd: {
      const std::int64_t begin = std::max(warmup, steps - decay_steps);
      return t < begin ? lr : lr + (min_lr - lr) * progress(t, begin, steps);
    }
  }
  return lr;
}

}  // namespace fp8::optim
