#include "paired.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "fp8/base/student.h"

namespace fp8::inspect {
namespace {

// Degrees of freedom of a mean of sequences; more than 1000 change a quantile by less than 1 %.
std::size_t freedom_of(std::int64_t sequences) {
  return static_cast<std::size_t>(std::clamp<std::int64_t>(sequences - 1, 1, 1000));
}

}  // namespace

double LossChange::p_value(std::int64_t tested) const {
  if (!std::isfinite(change)) return 0;
  if (std::isnan(standard_error) || change <= 0) return 1;
  const double share = standard_error == 0 ? 1 : student_share(change / standard_error, freedom_of(sequences));
  return std::min(1.0, (1 - share) / 2 * static_cast<double>(tested));
}

double LossChange::noise(std::int64_t tested, std::int64_t count) const {
  const double error = standard_error * std::sqrt(static_cast<double>(sequences) / static_cast<double>(count));
  return student_quantile(1 - 2 * kLevel / static_cast<double>(tested), freedom_of(count)) * error;
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
