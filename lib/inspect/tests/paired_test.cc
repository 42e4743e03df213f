// The change of a loss, its standard error, and the number of sequences that a smaller one needs.
#include "paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace fp8::inspect {
namespace {

LossChange change_of(const std::vector<double>& differences, const std::vector<std::int64_t>& targets) {
  PairedSums sums;
  std::vector<double> without(differences.size(), 3), with = without;
  for (std::size_t i = 0; i < with.size(); ++i) with[i] += differences[i];
  sums.add(with, without, targets);
  return sums.change(*comm::solo());
}

TEST(Paired, StandardErrorIsThatOfAMean) {
  const LossChange c = change_of({8, 16, 24, 0}, {8, 8, 8, 0});
  EXPECT_EQ(c.sequences, 3) << "without the one that has no target";
  EXPECT_DOUBLE_EQ(c.change, 2);
  EXPECT_DOUBLE_EQ(c.standard_error, 1 / std::sqrt(3.0));
  const double t = 2 * std::sqrt(3.0);
  EXPECT_NEAR(c.p_value(1), 0.5 * (1 - t / std::sqrt(2 + t * t)), 1e-12) << "t with two degrees of freedom";
  EXPECT_NEAR(c.p_value(3), 3 * c.p_value(1), 1e-12);
  EXPECT_EQ(c.p_value(1000), 1);
}

TEST(Paired, SequencesOfOtherLengthsWeighByTheirTargets) {
  const LossChange c = change_of({10, 2, 3}, {10, 1, 4});
  EXPECT_DOUBLE_EQ(c.change, 1);
  EXPECT_DOUBLE_EQ(c.standard_error, std::sqrt(1.5 * (0 + 1 + 1)) / 15);
}

TEST(Paired, OnlyARiseHurts) {
  EXPECT_TRUE(change_of({1, 1.01, 0.99, 1}, {1, 1, 1, 1}).hurts(10));
  EXPECT_FALSE(change_of({-1, -1.01, -0.99, -1}, {1, 1, 1, 1}).hurts(10));
  EXPECT_FALSE(change_of({1, -1.01, 0.99, -1}, {1, 1, 1, 1}).hurts(1));
  EXPECT_TRUE(change_of({1, NAN, 1, 1}, {1, 1, 1, 1}).hurts(1)) << "a loss that is not finite";
  EXPECT_FALSE(change_of({1}, {1}).hurts(1)) << "no standard error";
}

TEST(Paired, NoiseIsTheLeastChangeThatHurts) {
  LossChange c = change_of({3, 1, 2, 5, 4, 1, 0, 2}, {1, 1, 1, 1, 1, 1, 1, 1});
  const double noise = c.noise(12);
  c.change = noise * 1.001;
  EXPECT_TRUE(c.hurts(12));
  c.change = noise * 0.999;
  EXPECT_FALSE(c.hurts(12));
  EXPECT_EQ(c.sequences_for(noise, 12).value(), 8);
  const std::int64_t more = c.sequences_for(noise / 2, 12).value();
  EXPECT_LT(more, 32) << "quantiles fall with the degrees of freedom";
  LossChange later = c;
  later.standard_error *= std::sqrt(8.0 / static_cast<double>(more));
  later.sequences = more;
  EXPECT_LE(later.noise(12), noise / 2);
  later.sequences -= 1;
  later.standard_error = c.standard_error * std::sqrt(8.0 / static_cast<double>(more - 1));
  EXPECT_GT(later.noise(12), noise / 2);
}

// One of twelve hurts in as many experiments without any effect as the level says.
TEST(Paired, ChanceRarelyHurts) {
  constexpr int kExperiments = 2000;
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  int hurt = 0;
  for (int i = 0; i < kExperiments; ++i) {
    bool any = false;
    for (int linear = 0; linear < 12; ++linear) {
      std::vector<double> d(8);
      for (double& v : d) v = normal(random);
      any = any || change_of(d, std::vector<std::int64_t>(8, 1)).hurts(12);
    }
    hurt += any ? 1 : 0;
  }
  EXPECT_GT(hurt, kExperiments * kLevel / 2);
  EXPECT_LT(hurt, kExperiments * kLevel * 1.5);
}

}  // namespace
}  // namespace fp8::inspect
