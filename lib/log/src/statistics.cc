// Statistics of a column.
#include "statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <numeric>

namespace fp8::log {
namespace {

constexpr std::size_t kFew = std::size_t{1} << 17U;  // sorted in memory
constexpr std::uint64_t kSign = std::uint64_t{1} << 63U;

// The best finite value by `better`; nullopt without any.
template <typename Better>
std::optional<double> best(const Values& values, Better better) {
  std::optional<double> found;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && (!found || better(values[i], *found))) found = values[i];
  }
  return found;
}

// Maps finite values to integers in the same order.
std::uint64_t key_of(double v) {
  const auto bits = std::bit_cast<std::uint64_t>(v + 0.0);  // -0 becomes +0
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

// The finite value at position `rank` of the sorted finite values, by radix selection: each pass counts the values by
// the next 16 bits of their keys and keeps the bucket that contains the rank, until kFew values are left.
double ranked(const Values& values, std::size_t rank, std::size_t finite) {
  constexpr unsigned kBits = 16;
  unsigned shift = 64;
  std::uint64_t prefix = 0;
  const auto shares = [&](std::uint64_t key) { return shift == 64 || key >> shift == prefix; };
  while (finite > kFew && shift > 0) {
    std::vector<std::size_t> counts(std::size_t{1} << kBits);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint64_t key = key_of(values[i]);
      if (std::isfinite(values[i]) && shares(key)) ++counts[key >> (shift - kBits) & 0xFFFFU];
    }
    std::size_t bucket = 0;
    for (; rank >= counts[bucket]; ++bucket) rank -= counts[bucket];
    prefix = prefix << kBits | bucket;
    shift -= kBits;
    finite = counts[bucket];
  }
  if (shift == 0) return std::bit_cast<double>((prefix & kSign) != 0 ? prefix & ~kSign : ~prefix);
  std::vector<double> kept;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && shares(key_of(values[i]))) kept.push_back(values[i]);
  }
  const auto at = kept.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(kept.begin(), at, kept.end());
  return *at;
}

// Probability that Student's t with `freedom` degrees of freedom is at most `t` in absolute value.
double student_share(double t, std::size_t freedom) {
  const double angle = std::atan(t / std::sqrt(static_cast<double>(freedom)));
  const double cosine2 = std::cos(angle) * std::cos(angle);
  const bool odd = freedom % 2 == 1;
  double term = odd ? std::cos(angle) : 1, sum = freedom > 1 ? term : 0;
  for (std::size_t k = odd ? 3 : 2; k + 2 <= freedom; k += 2) {
    term *= cosine2 * static_cast<double>(k - 1) / static_cast<double>(k);
    sum += term;
  }
  return odd ? 2 / std::numbers::pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum;
}

}  // namespace

std::optional<double> mean(const Values& values) {
  double sum = 0;
  std::size_t n = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    sum += values[i];
    ++n;
  }
  if (n == 0) return std::nullopt;
  return sum / static_cast<double>(n);
}

std::optional<double> quantile(const Values& values, double q) {
  std::size_t finite = 0;
  for (std::size_t i = 0; i < values.size(); ++i) finite += std::isfinite(values[i]) ? 1 : 0;
  if (finite == 0) return std::nullopt;
  const double place = q * static_cast<double>(finite - 1);
  const auto below = static_cast<std::size_t>(place);
  const double low = ranked(values, below, finite);
  if (below + 1 == finite) return low;
  return std::lerp(low, ranked(values, below + 1, finite), place - static_cast<double>(below));
}

std::optional<double> least(const Values& values) { return best(values, std::less<>()); }
std::optional<double> greatest(const Values& values) { return best(values, std::greater<>()); }

std::optional<double> last(const Values& values) {
  if (values.size() == 0 || !std::isfinite(values[values.size() - 1])) return std::nullopt;
  return values[values.size() - 1];
}

std::optional<double> standard_error(std::span<const double> values) {
  const std::size_t n = values.size();
  if (n < 2) return std::nullopt;
  const auto count = static_cast<double>(n);
  double m = 0;
  for (const double v : values) m += v;
  m /= count;
  const auto autocovariance = [&](std::size_t lag) {
    double sum = 0;
    for (std::size_t i = lag; i < n; ++i) sum += (values[i] - m) * (values[i - lag] - m);
    return sum / count;
  };
  const auto most = std::min(n - 1, static_cast<std::size_t>(4 * std::pow(count / 100, 2.0 / 9)));
  double variance = autocovariance(0);
  for (std::size_t lag = 1; lag <= most; ++lag) {
    variance += 2 * (1 - static_cast<double>(lag) / static_cast<double>(most + 1)) * autocovariance(lag);
  }
  return std::sqrt(std::max(variance, 0.0) / (count - 1));
}

double student_t95(std::size_t freedom) {
  double low = 1, high = 16;
  for (int i = 0; i < 60; ++i) {
    const double middle = std::midpoint(low, high);
    (student_share(middle, freedom) < 0.95 ? low : high) = middle;
  }
  return low;
}

}  // namespace fp8::log
