// The panel of a comparison: moving mean of the gap, and its band.
#include "gap.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8/log/compare.h"
#include "fp8/log/picture.h"
#include "points.h"

namespace fp8::log {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The mean at x, interpolated linearly; x is within the range of the means.
Mean mean_at(const std::vector<Mean>& means, double x) {
  const auto at = std::lower_bound(means.begin(), means.end(), x, [](const Mean& m, double v) { return m.x < v; });
  if (at == means.end()) return means.back();
  if (at == means.begin() || at->x == x) return *at;
  if (!std::isfinite((at - 1)->y) || !std::isfinite(at->y)) return {x, kNan, kNan};
  const double share = (x - (at - 1)->x) / (at->x - (at - 1)->x);
  return {x, std::lerp((at - 1)->y, at->y, share), std::lerp((at - 1)->error, at->error, share)};
}

// Half the width of the band at a point, from the pairs' means there.
double half_width(const std::vector<Mean>& means) {
  std::vector<double> gaps;
  double variance = 0;
  for (const Mean& m : means) {
    gaps.push_back(m.y);
    variance += m.error * m.error;
  }
  if (means.size() >= kEnoughPairs) return mean_interval(gaps).value_or(kNan);
  return 2 * std::sqrt(variance) / static_cast<double>(means.size());
}

plot::GapPanel panel(const std::vector<std::vector<Mean>>& pairs) {
  plot::GapPanel gap;
  gap.band_name =
      pairs.size() >= kEnoughPairs ? "95 % interval over " + std::to_string(pairs.size()) + " pairs" : "2 x step noise";
  double first = pairs.front().front().x, last = pairs.front().back().x;
  for (const std::vector<Mean>& pair : pairs) {
    first = std::max(first, pair.front().x);
    last = std::min(last, pair.back().x);
  }
  for (const Mean& place : pairs.front()) {
    if (place.x < first || place.x > last) continue;
    std::vector<Mean> means;
    double sum = 0;
    for (const std::vector<Mean>& pair : pairs) {
      means.push_back(mean_at(pair, place.x));
      sum += means.back().y;
    }
    const double mean = sum / static_cast<double>(pairs.size()), half = half_width(means);
    gap.mean.push_back({place.x, mean});
    gap.low.push_back({place.x, mean - half});
    gap.high.push_back({place.x, mean + half});
  }
  return gap;
}

}  // namespace

plot::Picture comparison_picture(std::span<const Run> a, std::span<const Run> b, const std::string& metric,
                                 std::optional<double> gate) {
  const auto matched = pairs_of(a, b);
  plot::Picture p = picture(a, metric);
  plot::Picture other = picture(b, metric);
  p.by_tokens = p.by_tokens && other.by_tokens;
  for (std::size_t pair = 0; pair < matched.size(); ++pair) {
    const auto style = [&](std::vector<plot::Curve>& curves, const Run& run, std::size_t side) {
      for (plot::Curve& curve : curves) {
        if (curve.name == run.name) curve.style = side + plot::kColours * pair;
      }
    };
    style(p.curves, a[matched[pair].first], 0);
    style(other.curves, b[matched[pair].second], 1);
  }
  p.curves.insert(p.curves.end(), std::make_move_iterator(other.curves.begin()),
                  std::make_move_iterator(other.curves.end()));
  if (metric == kEvalLoss) return p;
  std::vector<std::vector<Mean>> pairs;
  for (const auto& [i, j] : matched) {
    pairs.push_back(means_of(Points(gap_of(a[i], b[j], metric), metric, true)));
  }
  p.gap = panel(pairs);
  p.gap->gate = gate;
  p.gap->label = metric == "loss" ? "gap (nats per token)" : "gap";
  return p;
}

}  // namespace fp8::log
