/// The points of a metric over a run, and their reduction to the resolution of a plot.
#pragma once

#include <string>
#include <vector>

#include "fp8/log/picture.h"

namespace fp8::log {

using plot::Point;

/// Tokens seen after `step`; 0 before the first.
double tokens_at(const Run& run, std::int64_t step);

/// The points of a metric, computed on access.
class Points {
 public:
  /// A field of the step records that was read, or kEvalLoss. Of a field that is in the records of every so many steps
  /// alone, only these are points.
  Points(const Run& run, const std::string& metric, bool by_tokens);
  /// Number of points.
  std::size_t size() const { return y_.empty() ? few_.size() : y_.size(); }
  /// Point `i`.
  Point operator[](std::size_t i) const { return y_.empty() ? few_[i] : Point{static_cast<double>(x_[i]), y_[i]}; }

 private:
  std::span<const std::int64_t> x_;
  std::span<const double> y_;
  std::vector<Point> few_;
};

/// The minimum and the maximum of each group in order of x; all points when there are few.
std::vector<Point> thinned(const Points& points);

/// Moving mean of at most 450 points, without values far from their neighbours; these spikes are points of their own,
/// with their height. Empty for few points and for curves with little noise.
std::vector<Point> smoothed(const Points& points);

/// The last value; NaN without any.
double last_of(const Points& points);

/// The mean of the last window of smoothed(), without spikes; NaN if the last value is not finite.
double end_of(const Points& points);

/// A mean over neighbouring points and its standard error.
struct Mean {
  double x = 0;      ///< middle of the window
  double y = 0;      ///< mean of the finite values; NaN without any
  double error = 0;  ///< standard error of the mean; NaN for fewer than two values
};

/// Moving mean of any number of points, at most 450 of them, over the windows of smoothed().
std::vector<Mean> means_of(const Points& points);

}  // namespace fp8::log
