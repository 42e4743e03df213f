// Quantiles against a sorted copy.
#include "statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace fp8::log {
namespace {

TEST(Quantile, IsThatOfTheSortedFiniteValues) {
  std::mt19937_64 random(6);
  for (const int kind : {0, 1, 2}) {
    std::vector<double> values;
    for (int i = 0; i < 4000; ++i) {
      const double v = static_cast<double>(random() % 1000003);
      values.push_back(kind == 0 ? v - 5e5 : kind == 1 ? 19000 + v / 1e6 : static_cast<double>(random() % 3));
    }
    values[7] = NAN;
    std::vector<double> sorted = values;
    sorted.erase(sorted.begin() + 7);
    std::sort(sorted.begin(), sorted.end());
    for (const double q : {0.0, 0.1, 0.5, 0.9, 0.999, 1.0}) {
      const double place = q * static_cast<double>(sorted.size() - 1);
      const auto below = static_cast<std::size_t>(place);
      const double high = sorted[std::min(below + 1, sorted.size() - 1)];
      EXPECT_EQ(quantile(values, q), std::lerp(sorted[below], high, place - static_cast<double>(below)))
          << kind << " " << q;
    }
  }
}

}  // namespace
}  // namespace fp8::log
