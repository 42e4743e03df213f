// exp and sigmoid compared with libm in f64, in single calls and in vectorized loops.
#include "vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "fp8/dtype/element.h"

namespace fp8::ops {
namespace {

// Difference in units of the last place of the f32 result.
double ulps(float got, double want) {
  int exponent = 0;
  std::frexp(want, &exponent);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

TEST(Exp, IsWithinTwoUlpOnEveryExponent) {
  double worst = 0;
  for (std::uint32_t bits = 0x30000000u; bits < 0x42D00000u; bits += 37) {  // up to 104
    const float x = -std::bit_cast<float>(bits);
    worst = std::max(worst, ulps(exp_f32(x), std::exp(static_cast<double>(x))));
    if (-x < 88.7f) worst = std::max(worst, ulps(exp_f32(-x), std::exp(static_cast<double>(-x))));
  }
  EXPECT_LE(worst, 1.5);
}

TEST(Exp, LimitsOfTheRange) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-kInfinity), 0.0f);
  EXPECT_EQ(exp_f32(-1e30f), 0.0f);
  EXPECT_EQ(exp_f32(-104.0f), 0.0f);
  EXPECT_EQ(exp_f32(-103.0f), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(exp_f32(kInfinity), kInfinity);
  EXPECT_EQ(exp_f32(89.0f), kInfinity);
  EXPECT_EQ(exp_f32(1e30f), kInfinity);
  EXPECT_TRUE(std::isnan(exp_f32(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(exp_f32(-std::numeric_limits<float>::quiet_NaN())));
}

TEST(Exp, IsTheSameInAVectorizedLoop) {
  std::vector<float> x, y;
  for (int i = 0; i < 4001; ++i) x.push_back(static_cast<float>(i - 2400) * 0.0433f);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  x[6] = -std::numeric_limits<float>::infinity();
  y.resize(x.size());
#pragma omp simd
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = exp_f32(x[i]);
  EXPECT_TRUE(std::isnan(y[5]));
  EXPECT_EQ(y[6], 0.0f);
  for (std::size_t i = 7; i < x.size(); ++i) EXPECT_LE(ulps(y[i], std::exp(static_cast<double>(x[i]))), 1.5);
}

TEST(ExpRounded, IsTheNearestFloat) {
  int wrong = 0, all = 0;
  for (std::uint32_t bits = 0x30000000u; bits < 0x42B00000u; bits += 1009) {  // up to 88
    for (const float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      ++all;
      wrong += exp_rounded(x) != static_cast<float>(std::exp(static_cast<double>(x))) ? 1 : 0;
    }
  }
  EXPECT_LE(wrong, all / 100000);
}

TEST(ExpRounded, LimitsOfTheRange) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_rounded(0.0f), 1.0f);
  EXPECT_EQ(exp_rounded(-kInfinity), 0.0f);
  EXPECT_EQ(exp_rounded(-104.0f), 0.0f);
  EXPECT_EQ(exp_rounded(-103.0f), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(exp_rounded(kInfinity), kInfinity);
  EXPECT_EQ(exp_rounded(89.0f), kInfinity);
  EXPECT_TRUE(std::isnan(exp_rounded(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(exp_for<float>(1.0f), exp_rounded(1.0f));
  EXPECT_EQ(exp_for<dtype::Bf16>(1.0f), exp_f32(1.0f));
}

TEST(Sigmoid, SaturatesWithoutNaN) {
  EXPECT_EQ(sigmoid<dtype::Bf16>(0.0f), 0.5f);
  EXPECT_EQ(sigmoid<dtype::Bf16>(200.0f), 1.0f);
  EXPECT_EQ(sigmoid<dtype::Bf16>(-200.0f), 0.0f);
  for (float x = -80; x < 80; x += 0.37f)
    EXPECT_LE(ulps(sigmoid<dtype::Bf16>(x), 1 / (1 + std::exp(-static_cast<double>(x)))), 3.0);
}

}  // namespace
}  // namespace fp8::ops
