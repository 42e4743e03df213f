#include "paired.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "fp8/base/student.h"

namespace fp8::inspect {
namespace {

constexpr double kNearlyNormal = 1000;  // degrees of freedom; more change a quantile by less than 1 %

double square(double v) { return v * v; }

// How much chance moves a change: a deviation, and its degrees of freedom.
struct Deviation {
  double size = 0;
  std::size_t freedom = 1;
};

Deviation deviation_of(const LossChange& c, double standard_error, std::int64_t sequences) {
  const double error = square(standard_error), spread = square(c.spread);
  const double denominator = square(error) / static_cast<double>(sequences - 1) +
                             (c.falls > 0 ? square(spread) / static_cast<double>(c.falls) : 0);
  const double freedom = denominator > 0 ? square(error + spread) / denominator : static_cast<double>(sequences - 1);
  return {std::sqrt(error + spread), static_cast<std::size_t>(std::clamp(freedom, 1.0, kNearlyNormal))};
}

}  // namespace

double LossChange::p_value(std::int64_t tested) const {
  if (!std::isfinite(change)) return 0;
  if (std::isnan(standard_error) || change <= 0) return 1;
  const Deviation d = deviation_of(*this, standard_error, sequences);
  const double share = d.size == 0 ? 1 : student_share(change / d.size, d.freedom);
  return std::min(1.0, (1 - share) / 2 * static_cast<double>(tested));
}

double LossChange::noise(std::int64_t tested, std::int64_t count) const {
  const double error = standard_error * std::sqrt(static_cast<double>(sequences) / static_cast<double>(count));
  const Deviation d = deviation_of(*this, error, count);
  return student_quantile(1 - 2 * kLevel / static_cast<double>(tested), d.freedom) * d.size;
}

std::optional<std::int64_t> LossChange::sequences_for(double wanted, std::int64_t tested) const {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (noise(tested) <= wanted) return sequences;
  if (noise(tested, kMost) > wanted) return std::nullopt;
  std::int64_t few = sequences, enough = kMost;
  while (enough - few > 1) {
    const std::int64_t middle = std::midpoint(few, enough);
    (noise(tested, middle) > wanted ? few : enough) = middle;
  }
  return enough;
}

void set_spread(std::span<LossChange> changes) {
  constexpr double kMost = 2;  // medians
  double squares = 0;
  std::int64_t falls = 0;
  std::vector<double> errors;
  for (const LossChange& c : changes) {
    if (!std::isfinite(c.change) || !(c.standard_error > 0)) continue;
    errors.push_back(c.standard_error);
    if (c.change >= 0) continue;
    squares += square(c.change / c.standard_error) - 1;
    ++falls;
  }
  std::ranges::sort(errors);
  const double most = errors.empty() ? 0 : kMost * errors[errors.size() / 2];
  const double ratio = falls > 0 && squares > 0 ? std::sqrt(squares / static_cast<double>(falls)) : 0;
  for (LossChange& c : changes)
    c.spread = c.standard_error > 0 ? ratio * std::min(c.standard_error, most) : 0, c.falls = falls;
}

void PairedSums::add(std::span<const double> with, std::span<const double> without,
                     std::span<const std::int64_t> targets) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == 0) continue;
    const double d = with[i] - without[i], t = static_cast<double>(targets[i]);
    sequences_ += 1;
    d_ += d;
    t_ += t;
    dd_ += d * d;
    dt_ += d * t;
    tt_ += t * t;
  }
}

LossChange PairedSums::change(comm::Communicator& host_comm) const {
  std::array<double, 6> s{sequences_, d_, t_, dd_, dt_, tt_};
  host_comm.all_reduce(std::span<double>(s), comm::Reduce::sum);
  const auto [n, d, t, dd, dt, tt] = s;
  LossChange c{.change = d / t, .standard_error = NAN, .sequences = static_cast<std::int64_t>(n)};
  const double squares = std::max(0.0, dd - 2 * c.change * dt + c.change * c.change * tt);
  if (n >= 2) c.standard_error = std::sqrt(n / (n - 1) * squares) / t;
  return c;
}

}  // namespace fp8::inspect
