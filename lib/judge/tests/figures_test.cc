// Figures against values computed by hand, and the grid of temperatures against sums in f64.
#include "fp8/judge/figures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "fp8/judge/logits.h"

namespace fp8::judge {
namespace {

// d = ln 2, -ln 2, 0 and ln 4 in two sequences.
Figures some_figures() {
  Figures f(2);
  const double ln2 = std::log(2.0);
  f.add({0, 1, 5, -1, -1 - ln2});
  f.add({0, 2, 6, -1, -1 + ln2});
  f.add({1, 1, 7, -3, -3});
  f.add({1, 9, 8, -0.05, -0.05 - 2 * ln2});
  return f;
}

TEST(Figures, AreThoseOfTheirFormulas) {
  const Figures f = some_figures();
  const double ln2 = std::log(2.0);
  EXPECT_EQ(f.tokens(), 4);
  EXPECT_NEAR(f.k1(), 2 * ln2 / 4, 1e-15);
  // exp(-d) - 1 + d: 0.5 - 1 + ln2, 2 - 1 - ln2, 0, 0.25 - 1 + 2 ln2
  EXPECT_NEAR(f.k3(), (-0.25 + 2 * ln2) / 4, 1e-15);
  // exp(d) - 1 - d: 2 - 1 - ln2, 0.5 - 1 + ln2, 0, 4 - 1 - 2 ln2
  EXPECT_NEAR(f.k3_reverse(), (3.5 - 2 * ln2) / 4, 1e-15);
  EXPECT_NEAR(f.mean_abs(), ln2, 1e-15);
  EXPECT_NEAR(f.mult_prob_error(), (2 + 2 + 1 + 4) / 4.0, 1e-15);
  EXPECT_NEAR(f.weight_mean(), (0.5 + 2 + 1 + 0.25) / 4, 1e-15);
  EXPECT_EQ(f.worst().size(), 2U);
  EXPECT_EQ(f.worst()[0].position, 9);
  EXPECT_EQ(f.worst()[0].id, 8);
  ASSERT_TRUE(f.first_large());
  EXPECT_EQ(f.first_large()->position, 1);
}

TEST(Figures, CountRatiosOutsideOfTheBounds) {
  Figures f;
  for (const double d : {0.69, -0.69, 0.70, -0.70}) f.add({0, 1, 0, -1, -1 - d});
  EXPECT_EQ(f.outside(), 0.5);
}

TEST(Figures, HaveQuantilesWithinABin) {
  Figures f;
  for (int i = 1; i <= 1000; ++i) f.add({0, i, 0, -1, -1 - i * 1e-3});
  EXPECT_NEAR(std::log(f.ratio_quantile(0.5)), 0.5, 0.5 * 0.02);
  EXPECT_NEAR(std::log(f.ratio_quantile(0.9)), 0.9, 0.9 * 0.02);
  EXPECT_EQ(Figures().ratio_quantile(0.5), 1);
}

TEST(Figures, AreDividedByPositionAndProbability) {
  const Figures f = some_figures();
  ASSERT_EQ(f.by_position().size(), 4U);  // 1; 2 to 3; 4 to 7; 8 to 15
  EXPECT_EQ(f.by_position()[0].tokens, 2);
  EXPECT_EQ(f.by_position()[1].tokens, 1);
  EXPECT_EQ(f.by_position()[2].tokens, 0);
  EXPECT_EQ(f.by_position()[3].from, 8);
  std::int64_t tokens = 0;
  for (const Bin& b : f.by_probability()) {
    tokens += b.tokens;
    if (b.from == 0.9) {
      EXPECT_EQ(b.tokens, 1);
    }  // exp(-0.05)
    if (b.from == 0.1) {
      EXPECT_EQ(b.tokens, 2);
    }  // exp(-1)
  }
  EXPECT_EQ(tokens, 4);
}

TEST(Figures, KeepDigitsNearZero) { EXPECT_NEAR(k3_of(1e-7) / 0.5e-14, 1, 1e-6); }

// Two sequences of 1 and 3 tokens with sums 1 and 5: the mean 1.5, residuals -0.5 and 0.5, and t of one degree of
// freedom at 95 %, 12.706.
TEST(Intervals, AreThoseOfARatioOfSums) {
  const Mean m = mean_over({{1, 1}, {0, 0}, {3, 5}});
  EXPECT_DOUBLE_EQ(m.value, 1.5);
  EXPECT_NEAR(m.high - m.value, 12.706 * std::sqrt(2 * 0.5) / 4, 1e-3);
  EXPECT_NEAR(m.value - m.low, m.high - m.value, 1e-12);
  EXPECT_EQ(mean_over({{2, 3}}).high, 1.5);
  EXPECT_EQ(mean_over({}).value, 0);
}

TEST(Grid, HasTheLogProbabilitiesOfAllTemperatures) {
  std::vector<float> logits(1500);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(6 * std::sin(0.37 * static_cast<double>(i * i % 997)));
  for (const std::int32_t id : {0, 3, 1499}) {
    const TokenGrid grid = grid_of(logits, id);
    for (const double b : {0.25, 0.3, 0.7, 1.0, 1 / 0.7, 2.2, 2.5})
      EXPECT_NEAR(grid.at(b), tempered(logits, id, b), 2e-4) << id << ' ' << b;
    EXPECT_EQ(grid.at(9), grid.at(2.5));
  }
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) sum += std::exp(tempered(logits, static_cast<std::int32_t>(i), 1.3));
  EXPECT_NEAR(sum, 1, 1e-9);
}

}  // namespace
}  // namespace fp8::judge
