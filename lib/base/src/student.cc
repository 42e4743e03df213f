#include "fp8/base/student.h"

#include <cmath>
#include <numbers>
#include <numeric>

namespace fp8 {

double student_share(double t, std::size_t freedom) {
  const double angle = std::atan(t / std::sqrt(static_cast<double>(freedom)));
  const double cosine2 = std::cos(angle) * std::cos(angle);
  const bool odd = freedom % 2 == 1;
  double term = odd ? std::cos(angle) : 1, sum = freedom > 1 ? term : 0;
  for (std::size_t k = odd ? 3 : 2; k + 2 <= freedom; k += 2) {
    term *= cosine2 * static_cast<double>(k - 1) / static_cast<double>(k);
    sum += term;
  }
  return odd ? 2 / std::numbers::pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum;
}

double student_quantile(double share, std::size_t freedom) {
  double low = 0, high = 1;
  while (std::isfinite(high) && student_share(high, freedom) < share) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = std::midpoint(low, high);
    (student_share(middle, freedom) < share ? low : high) = middle;
  }
  return low;
}

}  // namespace fp8
