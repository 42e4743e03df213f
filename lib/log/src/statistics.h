/// Means, quantiles and standard errors of measured values. NaN means "not measured" and is skipped.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "fp8/log/series.h"

namespace fp8::log {

/// A number of a log as a measured value: NaN if it is so large that sums and squares of such numbers overflow.
inline double measured(double number) {
  constexpr double kLargest = 1e100;
  return std::abs(number) <= kLargest ? number : std::numeric_limits<double>::quiet_NaN();
}

/// A view of values in memory or of a series.
class Values {
 public:
  // NOLINTBEGIN(google-explicit-constructor): vectors and series are passed as Values
  /// A view of values in memory.
  Values(const std::vector<double>& values) : memory_(values.data()), size_(values.size()) {}
  /// A view of a series; empty for nullptr.
  Values(const Series<double>* series) : series_(series), size_(series == nullptr ? 0 : series->size()) {}
  // NOLINTEND(google-explicit-constructor)
  /// Number of values.
  std::size_t size() const { return size_; }
  /// Value `i`.
  double operator[](std::size_t i) const { return memory_ != nullptr ? memory_[first_ + i] : (*series_)[first_ + i]; }
  /// The last `n` values; n is at most size().
  Values last(std::size_t n) const {
    Values part = *this;
    part.first_ += size_ - n;
    part.size_ = n;
    return part;
  }

 private:
  const double* memory_ = nullptr;
  const Series<double>* series_ = nullptr;
  std::size_t first_ = 0, size_ = 0;
};

/// Mean of the finite values; nullopt without any.
std::optional<double> mean(const Values& values);

/// Quantile q (0 to 1) of the finite values, interpolated linearly; nullopt without any. Exact, in bounded memory.
std::optional<double> quantile(const Values& values, double q);

/// Minimum of the finite values; nullopt without any.
std::optional<double> least(const Values& values);

/// Maximum of the finite values; nullopt without any.
std::optional<double> greatest(const Values& values);

/// The last value; nullopt when it is not finite.
std::optional<double> last(const Values& values);

/// Standard error of the mean of `values`, all finite, whose neighbours may be correlated; nullopt for fewer than two.
/// Source: Newey and West 1987, Bartlett weights, lag 4 (n/100)^(2/9).
std::optional<double> standard_error(std::span<const double> values);

/// The value that Student's t distribution with `freedom` degrees of freedom, at least 1, exceeds in absolute value
/// with probability 5 %. Source: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4.
double student_t95(std::size_t freedom);

}  // namespace fp8::log
