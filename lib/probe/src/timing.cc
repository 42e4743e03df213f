// Quantiles of samples, and paired timing.
#include "timing.h"

#include <algorithm>
#include <cmath>

#include "fp8/device/profile.h"

namespace fp8::probe {
namespace {

constexpr double kSample = 0.005;  // target seconds of a sample, unless there is less time
constexpr std::int64_t kMostCalls = 1000;
constexpr std::size_t kLeast = 6, kMost = 200;  // pairs of samples; six give an interval

// Quantile of sorted samples, interpolated linearly.
double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Mean seconds of one call over `calls` calls.
double sample(const device::Context& ctx, const std::function<void()>& work, std::int64_t calls) {
  const std::int64_t begin = device::now_ns();
  for (std::int64_t i = 0; i < calls; ++i) work();
  device::synchronize(ctx);
  return 1e-9 * static_cast<double>(device::now_ns() - begin) / static_cast<double>(calls);
}

// Calls in a sample of `seconds`.
std::int64_t calls_for(const device::Context& ctx, const std::function<void()>& work, double seconds) {
  (void)sample(ctx, work, 1);  // creates GEMM plans and touches pages
  const double one = std::max(sample(ctx, work, 1), 1e-9);
  return std::clamp<std::int64_t>(std::llround(seconds / one), 1, kMostCalls);
}

// The median of sorted values, and the values `outside` from either end, counted from 0; no interval if it is negative.
Ratio ratio_at(const std::vector<double>& sorted, std::int64_t outside) {
  if (outside < 0) return {quantile(sorted, 0.5)};
  const auto k = static_cast<std::size_t>(outside);
  return {quantile(sorted, 0.5), sorted[k], sorted[sorted.size() - 1 - k]};
}

}  // namespace

Ratio ratio_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  // The interval excludes the median if at most `outside` of n samples are on one of its sides, each with chance 1/2.
  const auto n = static_cast<double>(samples.size());
  double chance = std::pow(0.5, n), sum = chance;
  std::int64_t outside = -1;
  while (sum <= 0.025) {
    ++outside;
    chance *= (n - static_cast<double>(outside)) / static_cast<double>(outside + 1);
    sum += chance;
  }
  return ratio_at(samples, outside);
}

Ratio ratio_of(const std::vector<double>& first, const std::vector<double>& second) {
  if (first.empty() || second.empty()) return {};
  std::vector<double> ratios;
  for (const double a : first) {
    for (const double b : second) ratios.push_back(a / b);
  }
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<double>(first.size()), m = static_cast<double>(second.size());
  const double deviation = std::sqrt(n * m * (n + m + 1) / 12);
  return ratio_at(ratios, std::llround(std::floor(n * m / 2 - 1.96 * deviation - 0.5)));
}

Timing timing_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {quantile(samples, 0.5), quantile(samples, 0.25), quantile(samples, 0.75),
          static_cast<std::int64_t>(samples.size())};
}

PairedTiming time_both(const device::Context& ctx, const std::function<void()>& first,
                       const std::function<void()>& second, double seconds) {
  device::synchronize(ctx);
  const std::int64_t begin = device::now_ns();
  const double each = std::min(kSample, seconds / (2 * kLeast));
  const std::int64_t calls_first = calls_for(ctx, first, each), calls_second = calls_for(ctx, second, each);
  std::vector<double> a, b, ratios;
  while (a.size() < kLeast || (a.size() < kMost && 1e-9 * static_cast<double>(device::now_ns() - begin) < seconds)) {
    a.push_back(sample(ctx, first, calls_first));
    b.push_back(sample(ctx, second, calls_second));
    ratios.push_back(a.back() / b.back());
  }
  return {timing_of(a), timing_of(b), ratio_of(ratios)};
}

}  // namespace fp8::probe
