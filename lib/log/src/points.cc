// Downsamples and smooths the points of a metric.
#include "points.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "statistics.h"

namespace fp8::log {
namespace {

constexpr std::size_t kMostGroups = 900;  // one per pixel column; each has two raw points
constexpr std::size_t kEnoughToSmooth = 50;
constexpr std::size_t kSmoothPoints = 450;

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

// Whether point i is a spike of one or two steps: whether it is farther from the median of the five points around it
// than 8 times the median distance of points from the middle of their neighbours, which is 6.6 standard deviations of
// normal noise. A steep curve has no spikes for that, since a median follows it.
bool is_spike(const Points& points, std::size_t i) {
  constexpr double kFar = 8;
  constexpr std::size_t kAround = 5, kNoise = 33;
  const std::size_t n = points.size();
  if (n < kNoise + 2 || !std::isfinite(points[i].y)) return false;
  const auto from = [&](std::size_t count, std::size_t first, std::size_t last) {
    return std::clamp(i < count / 2 ? 0 : i - count / 2, first, last - count);
  };
  std::vector<double> around, noise;
  for (std::size_t j = from(kAround, 0, n), end = j + kAround; j < end; ++j)
    if (const double y = points[j].y; std::isfinite(y)) around.push_back(y);
  for (std::size_t j = from(kNoise, 1, n - 1), end = j + kNoise; j < end; ++j)
    if (const double d = points[j].y - (points[j - 1].y + points[j + 1].y) / 2; std::isfinite(d))
      noise.push_back(std::abs(d));
  const double usual = quantile(Values(noise), 0.5).value_or(0);
  return usual > 0 && std::abs(points[i].y - *quantile(Values(around), 0.5)) > kFar * usual;
}

// The usual values of a window: the mean of those that are not far from the others, and which are.
struct Usual {
  double mean = kNan;
  double low = -HUGE_VAL, high = HUGE_VAL;  // other values are outliers
  bool few = false;                         // whether spikes are outliers instead

  bool excludes(const Points& points, std::size_t i) const {
    return few ? is_spike(points, i) : points[i].y < low || points[i].y > high;
  }
};

// In a window of many values one is an outlier beyond 8 times the mean of the distances from the median, which is 6.4
// standard deviations of normal noise.
Usual usual_of(const Points& points, std::size_t begin, std::size_t end) {
  constexpr double kFar = 8;
  constexpr std::size_t kMany = 16, kLeast = 3;
  const bool few = end - begin < kMany;
  std::vector<double> values;
  for (std::size_t i = begin; i < end; ++i) {
    const double y = points[i].y;
    if (std::isfinite(y) && !(few && end - begin >= kLeast && is_spike(points, i))) values.push_back(y);
  }
  if (few || values.size() < kMany) return {.mean = mean(Values(values)).value_or(kNan), .few = true};
  const double middle = *quantile(Values(values), 0.5);
  double distances = 0;
  for (const double y : values) distances += std::abs(y - middle);
  const double far = kFar * distances / static_cast<double>(values.size());
  std::erase_if(values, [&](double y) { return std::abs(y - middle) > far; });
  return {mean(Values(values)).value_or(middle), middle - far, middle + far};
}

// Appends the lowest and the highest outlier among the points [begin, end), and before and behind each the mean, so
// that the curve shows a spike with its height and its place.
void append_outliers(const Points& points, std::size_t begin, std::size_t end, const Usual& usual,
                     std::vector<Point>& curve) {
  std::optional<std::size_t> lowest, highest;
  for (std::size_t i = begin; i < end; ++i) {
    const double y = points[i].y;
    if (!usual.excludes(points, i)) continue;
    if (y < usual.mean && (!lowest || y < points[*lowest].y)) lowest = i;
    if (y > usual.mean && (!highest || y > points[*highest].y)) highest = i;
  }
  for (const std::size_t i : std::set<std::size_t>{lowest.value_or(end), highest.value_or(end)}) {
    if (i == end) continue;
    if (curve.back().x < points[i - 1].x) curve.push_back({points[i - 1].x, usual.mean});
    curve.push_back(points[i]);
    if (i + 1 < end) curve.push_back({points[i + 1].x, usual.mean});
  }
}

// The windows of a moving mean over n points: a fortieth of them to each side. Where a loss falls steeply, at the
// start, the mean over a wide window would lie above the curve, so a window reaches at most a sixth of its distance
// from the start to each side. At the end it extends backwards only, so that the last mean is not a single value.
class Windows {
 public:
  explicit Windows(std::size_t n) : n_(n), shown_(std::min(n, kSmoothPoints)) {}
  std::size_t size() const { return shown_; }
  std::size_t middle(std::size_t k) const { return shown_ == n_ ? k : k * (n_ - 1) / (shown_ - 1); }
  std::size_t begin(std::size_t k) const { return middle(k) - reach(middle(k)); }
  std::size_t end(std::size_t k) const { return middle(k) + std::min(reach(middle(k)), n_ - 1 - middle(k)) + 1; }

 private:
  std::size_t reach(std::size_t i) const { return std::min(std::max<std::size_t>(2, n_ / 40), i / 6); }
  std::size_t n_, shown_;
};

}  // namespace

// Tokens seen after `step`; 0 before the first.
double tokens_at(const Run& run, std::int64_t step) {
  const std::size_t behind = run.index_of(step + 1);
  return behind == 0 ? 0 : static_cast<double>(run.tokens[behind - 1]);
}

namespace {

// Whether a value is in the records of some steps alone, as with --update-rms-every: several are finite, but no two
// that follow each other.
bool recorded_now_and_then(std::span<const double> values) {
  std::size_t finite = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    if (i > 0 && std::isfinite(values[i - 1])) return false;
    ++finite;
  }
  return finite > 1;
}

}  // namespace

Points::Points(const Run& run, const std::string& metric, bool by_tokens) : x_(by_tokens ? run.tokens : run.steps) {
  if (metric != kEvalLoss) {
    y_ = run.find(metric);
    if (!recorded_now_and_then(y_)) return;
    for (std::size_t i = 0; i < y_.size(); ++i)
      if (std::isfinite(y_[i])) few_.push_back({static_cast<double>(x_[i]), y_[i]});
    y_ = {};
    return;
  }
  for (const auto& [step, e] : run.evaluations) {
    few_.push_back({by_tokens ? tokens_at(run, step) : static_cast<double>(step), e.loss});
  }
}

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
      kept.push_back({points[begin].x, kNan});
    } else {
      if (low->x > high->x) std::swap(low, high);
      kept.push_back(*low);
      kept.push_back(*high);
    }
  }
  return kept;
}

std::vector<Point> smoothed(const Points& points) {
  if (points.size() < kEnoughToSmooth || !noisy(points)) return {};
  const Windows windows(points.size());
  std::size_t end = points.size();  // end of the finite values
  while (end > 0 && !std::isfinite(points[end - 1].y)) --end;
  std::vector<Point> means;
  for (std::size_t k = 0; k < windows.size(); ++k) {
    if (windows.middle(k) >= end) {
      means.push_back({points[windows.middle(k)].x, kNan});
      continue;
    }
    const Usual usual = usual_of(points, windows.begin(k), windows.end(k));
    if (k > 0) append_outliers(points, windows.middle(k - 1) + 1, windows.middle(k) + 1, usual, means);
    const double x = points[windows.middle(k)].x;
    if (means.empty() || means.back().x < x) means.push_back({x, usual.mean});
  }
  return means;
}

double last_of(const Points& points) { return points.size() == 0 ? kNan : points[points.size() - 1].y; }

double end_of(const Points& points) {
  const Windows windows(points.size());
  if (!std::isfinite(last_of(points))) return kNan;
  const std::size_t last = windows.size() - 1;
  return usual_of(points, windows.begin(last), windows.end(last)).mean;
}

std::vector<Mean> means_of(const Points& points) {
  const Windows windows(points.size());
  std::vector<Mean> means;
  std::vector<double> values;
  for (std::size_t k = 0; k < windows.size(); ++k) {
    values.clear();
    for (std::size_t i = windows.begin(k); i < windows.end(k); ++i) {
      if (std::isfinite(points[i].y)) values.push_back(points[i].y);
    }
    means.push_back({points[windows.middle(k)].x, mean(values).value_or(kNan), standard_error(values).value_or(kNan)});
  }
  return means;
}

}  // namespace fp8::log
