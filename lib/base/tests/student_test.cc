// Student's t distribution against printed tables.
#include "fp8/base/student.h"

#include <gtest/gtest.h>

namespace fp8 {
namespace {

// Two-sided probabilities. Source: Abramowitz and Stegun 1964, table 26.10.
TEST(Student, QuantilesAreThoseOfTheTable) {
  struct Row {
    std::size_t freedom;
    double half, most, nearly_all;  // shares 0.5, 0.95, 0.9999
  };
  for (const Row& r : {Row{1, 1.000, 12.706, 6366.198}, Row{2, 0.816, 4.303, 99.992}, Row{7, 0.711, 2.365, 7.885},
                       Row{30, 0.683, 2.042, 4.482}, Row{120, 0.677, 1.980, 4.025}}) {
    EXPECT_NEAR(student_quantile(0.5, r.freedom), r.half, 5.1e-4) << r.freedom;
    EXPECT_NEAR(student_quantile(0.95, r.freedom), r.most, 5.1e-4) << r.freedom;
    EXPECT_NEAR(student_quantile(0.9999, r.freedom), r.nearly_all, r.freedom < 3 ? 0.01 : 1.1e-3) << r.freedom;
  }
}

TEST(Student, ShareIsTheInverseOfTheQuantile) {
  for (const std::size_t freedom : {1u, 4u, 9u, 1000u})
    for (const double share : {0.0, 0.2, 0.99, 1 - 1e-6})
      EXPECT_NEAR(student_share(student_quantile(share, freedom), freedom), share, 1e-12) << freedom;
}

}  // namespace
}  // namespace fp8
