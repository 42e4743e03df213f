// Learning rates by step.
#include "fp8/optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace fp8::optim {
namespace {

constexpr std::array<std::string_view, 4> kNames{"cosine", "linear", "constant", "wsd"};
constexpr std::array<std::string_view, 4> kDecayShapes{"linear", "cosine", "sqrt", "1-sqrt"};

/// Fraction of the way of t from begin to end, within [0, 1]; 1 if the interval is empty.
double progress(std::int64_t t, std::int64_t begin, std::int64_t end) {
  if (end <= begin) return 1;
  return std::clamp(static_cast<double>(t - begin) / static_cast<double>(end - begin), 0.0, 1.0);
}

double cosine(double p) { return (1 + std::cos(std::numbers::pi * p)) / 2; }

// Share of the decay that remains after the share p of its steps.
double remaining(DecayShape shape, double p) {
  switch (shape) {
    case DecayShape::linear:
      break;
    case DecayShape::cosine:
      return cosine(p);
    case DecayShape::sqrt:
      return std::sqrt(1 - p);
    case DecayShape::one_minus_sqrt:
      return 1 - std::sqrt(p);
  }
  return 1 - p;
}

}  // namespace

std::span<const std::string_view> schedule_names() { return kNames; }
std::span<const std::string_view> decay_shape_names() { return kDecayShapes; }

double Schedule::rate(std::int64_t t) const {
  if (t < warmup && warmup_from)
    return *warmup_from + (lr - *warmup_from) * static_cast<double>(t) / static_cast<double>(warmup);
  if (t < warmup) return lr * static_cast<double>(t + 1) / static_cast<double>(warmup);
  const double p = progress(t, warmup, steps);
  switch (kind) {
    case ScheduleKind::cosine:
      return min_lr + (lr - min_lr) * cosine(p);
    case ScheduleKind::linear:
      return lr + (min_lr - lr) * p;
    case ScheduleKind::constant:
      return lr;
    case ScheduleKind::wsd: {
      const std::int64_t begin = std::max(warmup, steps - decay_steps);
      return t < begin ? lr : min_lr + (lr - min_lr) * remaining(decay_shape, progress(t, begin, steps));
    }
  }
  return lr;
}

}  // namespace fp8::optim
