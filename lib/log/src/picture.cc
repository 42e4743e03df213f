// From columns to curves that a picture can show.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "fp8/base/error.h"
#include "fp8/log/plot.h"

namespace fp8::log {
namespace {

constexpr std::size_t kMostGroups = 900;  // as many as pixels; each gives two raw points
constexpr std::size_t kEnoughToSmooth = 50;
constexpr std::size_t kSmoothPoints = 450;

bool has(const Run& run, const std::string& metric) {
  if (metric == kEvalLoss) return !run.evaluations.empty();
  return std::find(run.metrics.begin(), run.metrics.end(), metric) != run.metrics.end();
}

bool counts_tokens(const Run& run) { return run.tokens.empty() || run.tokens.front() >= 0; }

// Tokens seen after `step`; 0 before the first.
double tokens_at(const Run& run, std::int64_t step) {
  const auto behind = std::upper_bound(run.steps.begin(), run.steps.end(), step) - run.steps.begin();
  return behind == 0 ? 0 : static_cast<double>(run.tokens[static_cast<std::size_t>(behind) - 1]);
}

std::vector<Point> points_of(const Run& run, const std::string& metric, bool by_tokens) {
  std::vector<Point> points;
  if (metric == kEvalLoss) {
    for (const Evaluation& e : run.evaluations) {
      points.push_back({by_tokens ? tokens_at(run, e.step) : static_cast<double>(e.step), e.loss});
    }
  } else if (const std::vector<double>* values = run.find(metric)) {
    const std::vector<std::int64_t>& x = by_tokens ? run.tokens : run.steps;
    for (std::size_t i = 0; i < values->size(); ++i) points.push_back({static_cast<double>(x[i]), (*values)[i]});
  }
  return points;
}

// The least and the greatest point of each group, in their order; all when there are few.
std::vector<Point> thinned(const std::vector<Point>& points) {
  if (points.size() <= 2 * kMostGroups) return points;
  std::vector<Point> kept;
  for (std::size_t g = 0; g < kMostGroups; ++g) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(g * points.size() / kMostGroups);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((g + 1) * points.size() / kMostGroups);
    std::optional<Point> low, high;
    for (auto p = begin; p != end; ++p) {
      if (!std::isfinite(p->y)) continue;
      if (!low || p->y < low->y) low = *p;
      if (!high || p->y > high->y) high = *p;
    }
    if (!low || !high) {
      kept.push_back({begin->x, std::numeric_limits<double>::quiet_NaN()});
    } else {
      if (low->x > high->x) std::swap(low, high);
      kept.push_back(*low);
      kept.push_back(*high);
    }
  }
  return kept;
}

// Whether the values go up and down so much that their course is hard to see.
bool noisy(const std::vector<Point>& points) {
  constexpr double kMostTurns = 4;
  double way = 0, low = std::numeric_limits<double>::infinity(), high = -low, before = low;
  for (const Point& p : points) {
    if (!std::isfinite(p.y)) continue;
    if (std::isfinite(before)) way += std::abs(p.y - before);
    before = p.y;
    low = std::min(low, p.y);
    high = std::max(high, p.y);
  }
  return way > kMostTurns * (high - low);
}

// Mean of the finite values around each of kSmoothPoints points. The window shrinks at the start, where a loss falls
// steeply, so that it stays centred; at the end it looks back, so that the last value does not stand alone.
std::vector<Point> smoothed(const std::vector<Point>& points) {
  const std::size_t n = points.size();
  if (n < kEnoughToSmooth || !noisy(points)) return {};
  std::vector<double> sums(n + 1, 0), counts(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const bool finite = std::isfinite(points[i].y);
    sums[i + 1] = sums[i] + (finite ? points[i].y : 0);
    counts[i + 1] = counts[i] + (finite ? 1 : 0);
  }
  const std::size_t reach = std::max<std::size_t>(2, n / 40), shown = std::min(n, kSmoothPoints);
  std::vector<Point> means;
  for (std::size_t k = 0; k < shown; ++k) {
    const std::size_t i = shown == n ? k : k * (n - 1) / (shown - 1);
    const std::size_t from = i - std::min(reach, i), to = i + std::min({reach, i, n - 1 - i}) + 1;
    means.push_back({points[i].x, (sums[to] - sums[from]) / (counts[to] - counts[from])});
  }
  return means;
}

// Names for the legend: paths where names do not tell the runs apart.
std::vector<std::string> legend(std::span<const Run> runs) {
  std::set<std::string> different;
  for (const Run& run : runs) different.insert(run.name);
  std::vector<std::string> names;
  for (const Run& run : runs) names.push_back(different.size() == runs.size() ? run.name : run.path);
  return names;
}

}  // namespace

Image image_of(const std::string& path) {
  if (path.ends_with(".svg")) return Image::svg;
  if (path.ends_with(".png")) return Image::png;
  throw Error(path + ": a plot's name must end in .svg or .png");
}

void check_metric(std::span<const Run> runs, const std::string& metric) {
  if (std::any_of(runs.begin(), runs.end(), [&](const Run& run) { return has(run, metric); })) return;
  std::vector<std::string> names;
  for (const Run& run : runs) {
    for (const std::string& name : run.metrics) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  if (std::any_of(runs.begin(), runs.end(), [](const Run& run) { return !run.evaluations.empty(); })) {
    names.emplace_back(kEvalLoss);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw Error("no metric \"" + metric + "\"; there are " + (list.empty() ? "none" : list));
}

Picture picture(std::span<const Run> runs, const std::string& metric) {
  check_metric(runs, metric);
  Picture p;
  p.metric = metric;
  p.by_tokens = std::all_of(runs.begin(), runs.end(), counts_tokens);
  const std::vector<std::string> names = legend(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!has(runs[i], metric)) continue;
    const std::vector<Point> points = points_of(runs[i], metric, p.by_tokens);
    p.curves.push_back({.name = names[i], .raw = thinned(points), .smooth = smoothed(points)});
  }
  return p;
}

}  // namespace fp8::log
