/// Student's t distribution.
#pragma once

#include <cstddef>

namespace fp8 {

/// Probability that |T| <= t, t >= 0, with `freedom` degrees of freedom, at least 1. Source: Abramowitz and Stegun
/// 1964, 26.7.3 and 26.7.4.
double student_share(double t, std::size_t freedom);

/// The t for which student_share() is `share`, 0 <= share < 1, to about 15 digits.
double student_quantile(double share, std::size_t freedom);

}  // namespace fp8
