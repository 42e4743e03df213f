// Which plans are kept when there are too many.
#include "recent_plans.h"

#include <gtest/gtest.h>

namespace fp8::gemm::testing {
namespace {

// A plan that is used in every step remains while others come and go, and so does the newest.
TEST(RecentPlans, DiscardTheHalfThatWasNotUsedForLongest) {
  RecentPlans<int, int> plans(8);
  int& recurring = plans.add(-1, std::make_unique<int>(7));
  for (int shape = 0; shape < 1000; ++shape) {
    EXPECT_EQ(plans.find(shape), nullptr);
    plans.add(shape, std::make_unique<int>(shape));
    ASSERT_EQ(plans.find(-1), &recurring);
    ASSERT_NE(plans.find(shape), nullptr);
    ASSERT_LE(plans.size(), 8U);
  }
  EXPECT_GE(plans.size(), 4U);
  EXPECT_NE(plans.find(998), nullptr);
  EXPECT_EQ(plans.find(900), nullptr);
}

TEST(RecentPlans, AreErasedByKey) {
  RecentPlans<int, int> plans(8);
  for (int key = 0; key < 6; ++key) plans.add(key, std::make_unique<int>(key));
  plans.erase_if([](int key) { return key % 2 == 0; });
  EXPECT_EQ(plans.size(), 3U);
  EXPECT_EQ(plans.find(2), nullptr);
  EXPECT_NE(plans.find(3), nullptr);
}

}  // namespace
}  // namespace fp8::gemm::testing
