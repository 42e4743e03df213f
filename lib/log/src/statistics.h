/// Means, quantiles and standard errors of measured values. NaN stands for "not measured" and is left out.
#pragma once

#include <optional>
#include <span>

namespace fp8::log {

/// Mean of the finite values; nothing without any.
std::optional<double> mean(std::span<const double> values);

/// Quantile q (0 to 1) of the finite values, linear between neighbours; nothing without any.
std::optional<double> quantile(std::span<const double> values, double q);

/// Least finite value; nothing without any.
std::optional<double> least(std::span<const double> values);

/// Greatest finite value; nothing without any.
std::optional<double> greatest(std::span<const double> values);

/// The last value, when it is finite.
std::optional<double> last(std::span<const double> values);

/// Standard error of the mean of `values`, all finite, whose neighbours may be correlated. Nothing for fewer than two.
/// Source: Newey and West 1987, Bartlett weights, lag 4 (n/100)^(2/9).
std::optional<double> standard_error(std::span<const double> values);

}  // namespace fp8::log
