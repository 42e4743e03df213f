/// Means, quantiles and standard errors of measured values. NaN means "not measured" and is skipped.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace fp8::log {

/// A value that was not measured.
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A number of a log as a measured value: NaN if it is so large that sums and squares of such numbers overflow.
inline double measured(double number) {
  constexpr double kLargest = 1e100;
  return std::abs(number) <= kLargest ? number : kNan;
}

/// Values of a column, or of anything else.
using Values = std::span<const double>;

/// Mean of the finite values; nullopt without any.
std::optional<double> mean(Values values);

/// Quantile q (0 to 1) of the finite values, interpolated linearly; nullopt without any. Copies them.
std::optional<double> quantile(Values values, double q);

/// Minimum of the finite values; nullopt without any.
std::optional<double> least(Values values);

/// Maximum of the finite values; nullopt without any.
std::optional<double> greatest(Values values);

/// The last value; nullopt when it is not finite.
std::optional<double> last(Values values);

/// Standard error of the mean of `values`, all finite, whose neighbours may be correlated; nullopt for fewer than two.
/// Source: Newey and West 1987, Bartlett weights, lag 4 (n/100)^(2/9).
std::optional<double> standard_error(std::span<const double> values);

/// The value that Student's t distribution with `freedom` degrees of freedom, at least 1, exceeds in absolute value
/// with probability 5 %.
double student_t95(std::size_t freedom);

}  // namespace fp8::log
