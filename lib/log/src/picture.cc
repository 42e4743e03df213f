// Downsamples and smooths columns for plots.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/log/plot.h"

namespace fp8::log {
namespace {

constexpr std::size_t kMostGroups = 900;  // one per pixel column; each has two raw points
constexpr std::size_t kEnoughToSmooth = 50;
constexpr std::size_t kSmoothPoints = 450;

bool has(const Run& run, const std::string& metric) {
  if (metric == kEvalLoss) return !run.evaluations.empty();
  return std::find(run.metrics.begin(), run.metrics.end(), metric) != run.metrics.end();
}

bool counts_tokens(const Run& run) { return run.tokens.empty() || run.tokens.front() >= 0; }

// Tokens seen after `step`; 0 before the first.
double tokens_at(const Run& run, std::int64_t step) {
  const std::size_t behind = run.steps.lower_bound(step + 1);
  return behind == 0 ? 0 : static_cast<double>(run.tokens[behind - 1]);
}

// The points of a metric, computed on access.
class Points {
 public:
  Points(const Run& run, const std::string& metric, bool by_tokens) : x_(by_tokens ? run.tokens : run.steps) {
    if (metric != kEvalLoss) {
      y_ = run.find(metric);
    } else {
      for (const auto& [step, e] : run.evaluations) {
        few_.push_back({by_tokens ? tokens_at(run, step) : static_cast<double>(step), e.loss});
      }
    }
  }
  std::size_t size() const { return y_ == nullptr ? few_.size() : y_->size(); }
  Point operator[](std::size_t i) const {
    return y_ == nullptr ? few_[i] : Point{static_cast<double>(x_[i]), (*y_)[i]};
  }

 private:
  const Series<std::int64_t>& x_;
  const Series<double>* y_ = nullptr;
  std::vector<Point> few_;
};

// The minimum and the maximum of each group in order of x; all points when there are few.
std::vector<Point> thinned(const Points& points) {
  std::vector<Point> kept;
  const bool few = points.size() <= 2 * kMostGroups;
  for (std::size_t i = 0; few && i < points.size(); ++i) kept.push_back(points[i]);
  for (std::size_t g = 0; !few && g < kMostGroups; ++g) {
    const std::size_t begin = g * points.size() / kMostGroups, end = (g + 1) * points.size() / kMostGroups;
    std::optional<Point> low, high;
    for (std::size_t i = begin; i < end; ++i) {
      const Point p = points[i];
      if (!std::isfinite(p.y)) continue;
      if (!low || p.y < low->y) low = p;
      if (!high || p.y > high->y) high = p;
    }
    if (!low || !high) {
      kept.push_back({points[begin].x, std::numeric_limits<double>::quiet_NaN()});
    } else {
      if (low->x > high->x) std::swap(low, high);
      kept.push_back(*low);
      kept.push_back(*high);
    }
  }
  return kept;
}

// Whether the total variation of the values exceeds kMostTurns times their range.
bool noisy(const Points& points) {
  constexpr double kMostTurns = 4;
  double way = 0, low = std::numeric_limits<double>::infinity(), high = -low, before = low;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double y = points[i].y;
    if (!std::isfinite(y)) continue;
    if (std::isfinite(before)) way += std::abs(y - before);
    before = y;
    low = std::min(low, y);
    high = std::max(high, y);
  }
  return way > kMostTurns * (high - low);
}

// Sum and number of the finite values before an index.
struct Before {
  double sum = 0;
  double count = 0;
};

std::map<std::size_t, Before> sums_before(const Points& points, const std::set<std::size_t>& places) {
  std::map<std::size_t, Before> sums;
  Before before;
  std::size_t i = 0;
  for (const std::size_t place : places) {
    for (; i < place; ++i) {
      const double y = points[i].y;
      before = {before.sum + (std::isfinite(y) ? y : 0), before.count + (std::isfinite(y) ? 1 : 0)};
    }
    sums[place] = before;
  }
  return sums;
}

// Mean of the finite values around each of kSmoothPoints points. At the start, where a loss falls steeply, the window
// shrinks to stay centred; at the end it extends backwards only, so that the last mean is not a single value.
std::vector<Point> smoothed(const Points& points) {
  const std::size_t n = points.size();
  if (n < kEnoughToSmooth || !noisy(points)) return {};
  const std::size_t reach = std::max<std::size_t>(2, n / 40), shown = std::min(n, kSmoothPoints);
  const auto point = [&](std::size_t k) { return shown == n ? k : k * (n - 1) / (shown - 1); };
  const auto from = [&](std::size_t i) { return i - std::min(reach, i); };
  const auto to = [&](std::size_t i) { return i + std::min({reach, i, n - 1 - i}) + 1; };
  std::set<std::size_t> places;
  for (std::size_t k = 0; k < shown; ++k) places.insert({from(point(k)), to(point(k))});
  const std::map<std::size_t, Before> sums = sums_before(points, places);
  std::vector<Point> means;
  for (std::size_t k = 0; k < shown; ++k) {
    const Before &begin = sums.at(from(point(k))), &end = sums.at(to(point(k)));
    means.push_back({points[point(k)].x, (end.sum - begin.sum) / (end.count - begin.count)});
  }
  return means;
}

}  // namespace

Image image_of(const std::string& path) {
  if (path.ends_with(".svg")) return Image::svg;
  if (path.ends_with(".png")) return Image::png;
  throw Error(path + ": the name of a plot must end in .svg or .png");
}

void check_metric(std::span<const Run> runs, const std::string& metric) {
  if (std::any_of(runs.begin(), runs.end(), [&](const Run& run) { return has(run, metric); })) return;
  std::vector<std::string> names = metrics_of(runs);
  if (std::any_of(runs.begin(), runs.end(), [](const Run& run) { return !run.evaluations.empty(); })) {
    names.emplace_back(kEvalLoss);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + excerpt(name);
  throw Error("no metric \"" + excerpt(metric) + "\"; available: " + (list.empty() ? "none" : list));
}

Picture picture(std::span<const Run> runs, const std::string& metric) {
  check_metric(runs, metric);
  Picture p;
  p.metric = metric;
  p.by_tokens = std::all_of(runs.begin(), runs.end(), counts_tokens);
  for (const Run& run : runs) {
    if (!has(run, metric)) continue;
    const Points points(run, metric, p.by_tokens);
    p.curves.push_back({.name = run.name, .raw = thinned(points), .smooth = smoothed(points)});
  }
  return p;
}

}  // namespace fp8::log
