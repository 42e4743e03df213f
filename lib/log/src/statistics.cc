// Statistics of a column.
#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "fp8/base/student.h"

namespace fp8::log {
namespace {

// The best finite value by `better`; nullopt without any.
template <typename Better>
std::optional<double> best(Values values, Better better) {
  std::optional<double> found;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && (!found || better(values[i], *found))) found = values[i];
  }
  return found;
}

}  // namespace

std::optional<double> mean(Values values) {
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

std::optional<double> quantile(Values values, double q) {
  std::vector<double> finite;
  std::ranges::copy_if(values, std::back_inserter(finite), [](double v) { return std::isfinite(v); });
  if (finite.empty()) return std::nullopt;
  const double place = q * static_cast<double>(finite.size() - 1);
  const auto at = finite.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(finite.begin(), at, finite.end());
  if (at + 1 == finite.end()) return *at;
  return std::lerp(*at, *std::min_element(at + 1, finite.end()), place - std::floor(place));
}

std::optional<double> least(Values values) { return best(values, std::less<>()); }
std::optional<double> greatest(Values values) { return best(values, std::greater<>()); }

std::optional<double> last(Values values) {
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

double student_t95(std::size_t freedom) { return student_quantile(0.95, freedom); }

}  // namespace fp8::log
