// Known answers of Philox 4x32-10 published with Random123, and the ranges of the numbers made from its words.
#include "fp8/device/philox.h"

#include <gtest/gtest.h>

namespace fp8::device {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint64_t kOnes = ~std::uint64_t{0};
  EXPECT_EQ(philox(kOnes, kOnes, kOnes), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EachArgumentMatters) {
  const Words base = philox(1, 2, 3);
  EXPECT_NE(base, philox(1 + (std::uint64_t{1} << 32), 2, 3));
  EXPECT_NE(base, philox(1, 2 + (std::uint64_t{1} << 32), 3));
  EXPECT_NE(base, philox(1, 2, 3 + (std::uint64_t{1} << 32)));
}

TEST(UnitInterval, IsOpenAtZeroAndClosedAtOne) {
  EXPECT_EQ(unit_interval(0), 0x1p-24f);
  EXPECT_EQ(unit_interval(0xFF), 0x1p-24f);
  EXPECT_EQ(unit_interval(0x7FFFFFFF), 0.5f);
  EXPECT_EQ(unit_interval(0xFFFFFFFF), 1.0f);
}

TEST(NormalPair, KnownPoints) {
  // a = 2^32 - 1 gives radius 0, so both are 0; b = 0 points along the first axis, b = 2^30 along the second.
  EXPECT_EQ(normal_pair(0xFFFFFFFF, 12345)[0], 0.0f);
  const auto first = normal_pair(0, 0);
  EXPECT_FLOAT_EQ(first[0], 6.6604368f);  // sqrt(2 ln 2^32), the largest
  EXPECT_EQ(first[1], 0.0f);
  const auto second = normal_pair(0, 0x40000000);
  EXPECT_NEAR(second[0], 0.0f, 1e-6f);
  EXPECT_FLOAT_EQ(second[1], 6.6604368f);
}

TEST(NormalPair, MomentsAreThoseOfTheNormalDistribution) {
  double sum = 0, square = 0, fourth = 0;
  constexpr int kPairs = 50000;
  for (std::uint64_t i = 0; i < kPairs; ++i) {
    const Words w = philox(7, i, 0);
    for (const float v : normal_pair(w[0], w[1])) {
      const double x = static_cast<double>(v);
      sum += x;
      square += x * x;
      fourth += x * x * x * x;
    }
  }
  EXPECT_NEAR(sum / (2 * kPairs), 0.0, 0.02);
  EXPECT_NEAR(square / (2 * kPairs), 1.0, 0.02);
  EXPECT_NEAR(fourth / (2 * kPairs), 3.0, 0.15);
}

}  // namespace
}  // namespace fp8::device
