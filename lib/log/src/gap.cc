// The panel of a comparison: moving mean of the gap, and its band.
#include "gap.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "fp8/log/compare.h"
#include "fp8/log/picture.h"
#include "points.h"
#include "seed.h"
#include "statistics.h"

namespace fp8::log {
namespace {

// The mean at x, interpolated linearly; x is within the range of the means.
Mean mean_at(const std::vector<Mean>& means, double x) {
  const auto at = std::lower_bound(means.begin(), means.end(), x, [](const Mean& m, double v) { return m.x < v; });
  if (at == means.end()) return means.back();
  if (at == means.begin() || at->x == x) return *at;
  if (!std::isfinite((at - 1)->y) || !std::isfinite(at->y)) return {x, kNan, kNan};
  const double share = (x - (at - 1)->x) / (at->x - (at - 1)->x);
  return {x, std::lerp((at - 1)->y, at->y, share), std::lerp((at - 1)->error, at->error, share)};
}

std::string band_name(std::size_t seeds, std::size_t pairs) {
  return seeds >= kEnoughPairs ? "95 % interval over " + interval_basis(seeds, pairs) : "2 x step noise";
}

plot::GapCurve curve_of(const std::vector<std::vector<Mean>>& pairs, const SeedGroups& groups) {
  plot::GapCurve gap;
  double first = pairs.front().front().x, last = pairs.front().back().x;
  for (const std::vector<Mean>& pair : pairs) {
    first = std::max(first, pair.front().x);
    last = std::min(last, pair.back().x);
  }
  for (const Mean& place : pairs.front()) {
    if (place.x < first || place.x > last) continue;
    std::vector<double> gaps, errors;
    for (const std::vector<Mean>& pair : pairs) {
      const Mean at = mean_at(pair, place.x);
      gaps.push_back(at.y);
      errors.push_back(at.error);
    }
    const std::vector<double> means = seed_means(gaps, groups);
    const double mean = std::accumulate(means.begin(), means.end(), 0.0) / static_cast<double>(means.size());
    const double half =
        means.size() >= kEnoughPairs ? mean_interval(means).value_or(kNan) : 2 * error_of_seed_means(errors, groups);
    gap.mean.push_back({place.x, mean});
    gap.low.push_back({place.x, mean - half});
    gap.high.push_back({place.x, mean + half});
  }
  return gap;
}

// Appends the curves of a side to the picture. `order` has the number of the pair of each run; unpaired runs are last.
void add_curves(plot::Picture& p, const Side& side, std::size_t number, const std::map<std::size_t, std::size_t>& order,
                const std::string& metric) {
  plot::Picture of_side = picture(side.runs, metric);
  p.by_tokens = p.by_tokens && of_side.by_tokens;
  for (plot::Curve& curve : of_side.curves) {
    const auto at = std::ranges::find(side.runs, curve.name, &Run::name) - side.runs.begin();
    const auto pair = order.find(static_cast<std::size_t>(at));
    const std::size_t dashes = pair == order.end() ? side.runs.size() - 1 : pair->second;
    curve.style = number % plot::kColours + plot::kColours * (dashes + number / plot::kColours);
    curve.group = number;
    p.curves.push_back(std::move(curve));
  }
}

// With many curves the legend names the sides, and all curves of a side look alike.
void name_sides(std::span<const Side> sides, plot::Picture& p) {
  p.ranked = p.curves.size() > plot::kMostNamed;
  if (!p.ranked) return;
  for (const Side& side : sides) p.groups.push_back({side.name, p.groups.size()});
  for (plot::Curve& curve : p.curves) curve.style = curve.group;
}

}  // namespace

plot::Picture comparison_picture(std::span<const Side> sides, const std::string& metric, std::optional<double> gate) {
  plot::Picture p = picture(sides.front().runs, metric);
  p.curves.clear(), p.groups.clear();
  plot::GapPanel panel;
  for (std::size_t k = 1; k < sides.size(); ++k) {
    const Side &a = sides.front(), &b = sides[k];
    const Pairing pairing = pairs_of(a.runs, b.runs);
    std::map<std::size_t, std::size_t> order_a, order_b;
    for (std::size_t pair = 0; pair < pairing.pairs.size(); ++pair) {
      order_a[pairing.pairs[pair].first] = pair;
      order_b[pairing.pairs[pair].second] = pair;
    }
    if (k == 1) add_curves(p, a, 0, order_a, metric);
    add_curves(p, b, k, order_b, metric);
    if (metric == kEvalLoss) continue;
    std::vector<std::vector<Mean>> pairs;
    std::vector<std::string> seeds;
    for (const auto& [i, j] : pairing.pairs) {
      pairs.push_back(means_of(Points(gap_of(a.runs[i], b.runs[j], metric), metric, true)));
      seeds.push_back(common_seed(a.runs[i], b.runs[j]));
    }
    const SeedGroups groups = group_by_seed(seeds);
    panel.curves.push_back(curve_of(pairs, groups));
    panel.curves.back().name = b.name + " - " + a.name;
    panel.curves.back().style = k;
    const std::string band = band_name(groups.size(), pairs.size());
    panel.band_name = k == 1 || panel.band_name == band ? band : "95 % interval, or 2 x step noise";
  }
  name_sides(sides, p);
  if (metric == kEvalLoss) return p;
  panel.gate = gate;
  panel.label = metric == "loss" ? "gap (nats per token)" : "gap";
  p.gap = std::move(panel);
  return p;
}

plot::GapChart gap_chart(std::span<const Side> sides, std::span<const PairedComparison> comparisons,
                         std::optional<double> gate) {
  plot::GapChart chart;
  chart.gate = gate;
  chart.title = "Loss less that of " + sides.front().name + ", nats per token";
  plot::GapDotsPanel training{"training loss", {}}, evaluation{"evaluation loss", {}};
  bool evaluated = false;
  for (std::size_t k = 0; k < comparisons.size(); ++k) {
    const PairedComparison& c = comparisons[k];
    chart.names.push_back(sides[k + 1].name);
    plot::GapDots &loss = training.rows.emplace_back(), &eval_loss = evaluation.rows.emplace_back();
    for (const Comparison& pair : c.pairs) {
      if (pair.gap) loss.dots.push_back(*pair.gap);
      if (pair.eval_gap) eval_loss.dots.push_back(*pair.eval_gap);
    }
    loss.mean = c.gap, loss.interval = c.interval;
    eval_loss.mean = c.eval_gap, eval_loss.interval = c.eval_interval;
    evaluated = evaluated || !eval_loss.dots.empty();
  }
  chart.panels.push_back(std::move(training));
  if (evaluated) chart.panels.push_back(std::move(evaluation));
  return chart;
}

}  // namespace fp8::log
