// Statistics of a column.
#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace fp8::log {
namespace {

std::vector<double> finite(std::span<const double> values) {
  std::vector<double> kept;
  kept.reserve(values.size());
  std::copy_if(values.begin(), values.end(), std::back_inserter(kept), [](double v) { return std::isfinite(v); });
  return kept;
}

// The finite value that no other one is better than.
template <typename Better>
std::optional<double> best(std::span<const double> values, Better better) {
  std::optional<double> found;
  for (const double v : values) {
    if (std::isfinite(v) && (!found || better(v, *found))) found = v;
  }
  return found;
}

}  // namespace

std::optional<double> mean(std::span<const double> values) {
  double sum = 0;
  std::size_t n = 0;
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    sum += v;
    ++n;
  }
  if (n == 0) return std::nullopt;
  return sum / static_cast<double>(n);
}

std::optional<double> quantile(std::span<const double> values, double q) {
  std::vector<double> kept = finite(values);
  if (kept.empty()) return std::nullopt;
  const double place = q * static_cast<double>(kept.size() - 1);
  const auto below = static_cast<std::ptrdiff_t>(place);
  std::nth_element(kept.begin(), kept.begin() + below, kept.end());
  const double low = kept[static_cast<std::size_t>(below)];
  if (below + 1 == std::ssize(kept)) return low;
  const double high = *std::min_element(kept.begin() + below + 1, kept.end());
  return std::lerp(low, high, place - static_cast<double>(below));
}

std::optional<double> least(std::span<const double> values) { return best(values, std::less<>()); }
std::optional<double> greatest(std::span<const double> values) { return best(values, std::greater<>()); }

std::optional<double> last(std::span<const double> values) {
  if (values.empty() || !std::isfinite(values.back())) return std::nullopt;
  return values.back();
}

std::optional<double> standard_error(std::span<const double> values) {
  const std::size_t n = values.size();
  if (n < 2) return std::nullopt;
  const auto count = static_cast<double>(n);
  const double m = mean(values).value_or(0);
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

}  // namespace fp8::log
