// Every encode, decode and rounding function against a slow reference in double arithmetic: all 65536 BF16 inputs, all
// codes, all half-way points with their neighbours, and random floats.
#include "fp8/dtype/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "fp8_codes.h"

namespace fp8::dtype {
namespace {

struct Format {
  int fraction_bits, min_exponent;
  double max;
  float (*round)(float);
  std::uint8_t (*encode)(float);
  float (*decode)(std::uint8_t);
};
const Format kE4m3{3, -6, 448.0, round_to_e4m3, to_e4m3, from_e4m3};
const Format kE5m2{2, -14, 57344.0, round_to_e5m2, to_e5m2, from_e5m2};

float bits_to_float(std::uint32_t u) { return std::bit_cast<float>(u); }

double reference_round(double v, const Format& f) {
  if (std::isnan(v)) return v;
  const double a = std::fmin(std::fabs(v), f.max);
  const int exponent = a == 0 ? f.min_exponent : std::max(std::ilogb(a), f.min_exponent);
  const double spacing = std::ldexp(1.0, exponent - f.fraction_bits);
  return std::copysign(std::nearbyint(a / spacing) * spacing, v);
}

// Value of a code, field by field.
double reference_decode(std::uint8_t code, const Format& f) {
  const int fraction = code & ((1 << f.fraction_bits) - 1), exponent = (code & 0x7F) >> f.fraction_bits;
  const double hidden = exponent == 0 ? 0.0 : std::ldexp(1.0, f.fraction_bits);
  const int power = std::max(exponent - 1, 0) + f.min_exponent - f.fraction_bits;
  const double magnitude = std::ldexp(hidden + fraction, power);
  return code & 0x80 ? -magnitude : magnitude;
}

// Whether the three functions agree with the reference on v.
::testing::AssertionResult agrees(float v, const Format& f) {
  const double expected = reference_round(static_cast<double>(v), f);
  const float rounded = f.round(v);
  const std::uint8_t code = f.encode(v);
  const bool sign = std::signbit(v);
  if (std::isnan(v)) {
    if (!std::isnan(rounded) || (code & 0x7F) != 0x7F || ((code & 0x80) != 0) != sign)
      return ::testing::AssertionFailure() << "NaN became " << rounded << ", code " << int{code};
    return ::testing::AssertionSuccess();
  }
  const bool same = static_cast<double>(rounded) == expected && std::signbit(rounded) == sign;
  const float decoded = f.decode(code);
  if (!same || decoded != rounded || std::signbit(decoded) != sign)
    return ::testing::AssertionFailure() << std::hexfloat << v << " became " << rounded << ", code " << int{code}
                                         << ", not " << expected;
  return ::testing::AssertionSuccess();
}

class Fp8 : public ::testing::TestWithParam<const Format*> {};
INSTANTIATE_TEST_SUITE_P(Formats, Fp8, ::testing::Values(&kE4m3, &kE5m2),
                         [](const auto& p) { return p.param == &kE4m3 ? "e4m3" : "e5m2"; });

TEST_P(Fp8, AllBf16Inputs) {
  for (std::uint32_t b = 0; b < 65536; ++b)
    ASSERT_TRUE(agrees(to_float(Bf16{static_cast<std::uint16_t>(b)}), *GetParam())) << b;
}

TEST_P(Fp8, CodesDecodeToTheirValuesAndBack) {
  const Format& f = *GetParam();
  for (int c = 0; c < 256; ++c) {
    const auto code = static_cast<std::uint8_t>(c);
    const float v = f.decode(code);
    if (std::isnan(v)) {
      EXPECT_EQ(f.encode(v) & 0x7F, 0x7F);
    } else if (std::isinf(v)) {
      EXPECT_EQ(f.encode(v), code - 1) << "infinity saturates to the code before it";
    } else {
      EXPECT_EQ(static_cast<double>(v), reference_decode(code, f)) << c;
      EXPECT_EQ(f.encode(v), code);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(v) & 0xFFFFu, 0u) << "every FP8 value is a BF16";
    }
  }
}

TEST_P(Fp8, HalfWayPointsAndTheirNeighbours) {
  const Format& f = *GetParam();
  for (int c = 0; c < 0x7F; ++c) {
    const float low = f.decode(static_cast<std::uint8_t>(c)), high = f.decode(static_cast<std::uint8_t>(c + 1));
    if (!std::isfinite(high)) break;
    const float middle = (low + high) / 2;
    EXPECT_EQ(f.encode(middle), c % 2 == 0 ? c : c + 1) << "ties go to the even code";
    for (const float v : {low, middle, high})
      for (const float w : {v, std::nextafterf(v, 1e9f), std::nextafterf(v, -1e9f)}) {
        EXPECT_TRUE(agrees(w, f));
        EXPECT_TRUE(agrees(-w, f));
      }
  }
}

TEST_P(Fp8, RandomFloats) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000000; ++i) {
    const auto u = static_cast<std::uint32_t>(random());
    ASSERT_TRUE(agrees(bits_to_float(u), *GetParam()));
    // Most random exponents saturate or underflow: repeat within the format's range.
    const float near = bits_to_float((u & 0x807FFFFFu) | (100u + (u >> 23 & 63u)) << 23);
    ASSERT_TRUE(agrees(near, *GetParam()));
  }
}

TEST(E4m3, Landmarks) {
  EXPECT_EQ(to_e4m3(448.0f), 0x7E);
  EXPECT_EQ(to_e4m3(1e30f), 0x7E);
  EXPECT_EQ(to_e4m3(-INFINITY), 0xFE);
  EXPECT_EQ(to_e4m3(1.0f), 0x38);
  EXPECT_EQ(to_e4m3(-0.0f), 0x80);
  EXPECT_EQ(to_e4m3(0x1p-9f), 0x01);
  EXPECT_EQ(to_e4m3(0x1p-10f), 0x00);
  EXPECT_TRUE(std::isnan(from_e4m3(0x7F)));
  EXPECT_TRUE(std::isnan(from_e4m3(0xFF)));
}

TEST(E5m2, Landmarks) {
  EXPECT_EQ(to_e5m2(57344.0f), 0x7B);
  EXPECT_EQ(to_e5m2(INFINITY), 0x7B);
  EXPECT_EQ(to_e5m2(1.0f), 0x3C);
  EXPECT_EQ(to_e5m2(0x1p-16f), 0x01);
  EXPECT_EQ(from_e5m2(0xFC), -INFINITY);
  for (const int c : {0x7D, 0x7E, 0x7F, 0xFD}) EXPECT_TRUE(std::isnan(from_e5m2(static_cast<std::uint8_t>(c))));
}

TEST(E8m0, DecodesPowersOfTwo) {
  for (int c = 0; c < 255; ++c)
    EXPECT_EQ(static_cast<double>(from_e8m0(static_cast<std::uint8_t>(c))), std::ldexp(1.0, c - 127)) << c;
  EXPECT_TRUE(std::isnan(from_e8m0(0xFF)));
}

TEST(E8m0, RoundsUp) {
  for (int c = 0; c < 255; ++c) {
    const float power = from_e8m0(static_cast<std::uint8_t>(c));
    EXPECT_EQ(to_e8m0_round_up(power), c);
    EXPECT_EQ(to_e8m0_round_up(std::nextafterf(power, 0.0f)), c);
    EXPECT_EQ(to_e8m0_round_up(std::nextafterf(power, INFINITY)), std::min(c + 1, 254));
  }
  EXPECT_EQ(to_e8m0_round_up(0.0f), 0x00);
  EXPECT_EQ(to_e8m0_round_up(0x1p-149f), 0x00);
  EXPECT_EQ(to_e8m0_round_up(INFINITY), 0xFE);
  EXPECT_EQ(to_e8m0_round_up(std::numeric_limits<float>::quiet_NaN()), 0xFF);
}

TEST(Bf16, RoundsToNearestEven) {
  std::mt19937 random(2);
  for (int i = 0; i < 1000000; ++i) {
    const float v = bits_to_float(static_cast<std::uint32_t>(random()));
    const Bf16 r = to_bf16(v);
    if (std::isnan(v)) {
      ASSERT_TRUE(std::isnan(to_float(r)));
      continue;
    }
    const int exponent = v == 0 ? -126 : std::max(std::ilogb(std::fabs(v)), -126);
    if (!std::isfinite(v)) {
      ASSERT_EQ(to_float(r), v);
      continue;
    }
    const double spacing = std::ldexp(1.0, exponent - 7);
    const double expected = std::nearbyint(static_cast<double>(v) / spacing) * spacing;
    ASSERT_EQ(static_cast<double>(to_float(r)),
              std::fabs(expected) >= 0x1p128 ? std::copysign(INFINITY, expected) : expected);
    ASSERT_EQ(std::signbit(to_float(r)), std::signbit(v));
  }
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f).bits, 0x3F80) << "a tie goes to even";
  EXPECT_EQ(to_bf16(1.0f + 0x3p-8f).bits, 0x3F82) << "a tie goes to even";
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7F80);
}

TEST(Bf16, PairsAreRoundedAsSingles) {
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    const float low = bits_to_float(static_cast<std::uint32_t>(random())),
                high = bits_to_float(static_cast<std::uint32_t>(random()));
    ASSERT_EQ(to_bf16_pair(low, high), to_bf16(low).bits | static_cast<std::uint32_t>(to_bf16(high).bits) << 16);
  }
}

TEST(Bf16, StochasticRoundingIsUnbiasedAndKeepsGridValues) {
  for (std::uint32_t b = 0; b < 65536; ++b) {
    const float v = bits_to_float(b << 16);
    const Bf16 r = to_bf16_stochastic(v, 0xFFFFFFFFu);
    if (!std::isnan(v)) {
      ASSERT_EQ(r.bits, b);
    }
  }
  int up = 0;  // a quarter of the way between two neighbours: a quarter of the samples rounds up
  for (std::uint32_t random = 0; random < 65536; ++random)
    up += to_bf16_stochastic(1.0f + 0x1p-9f, random).bits == 0x3F81;
  EXPECT_EQ(up, 16384);
  EXPECT_TRUE(std::isnan(to_float(to_bf16_stochastic(std::numeric_limits<float>::quiet_NaN(), 0xFFFF))));
  EXPECT_EQ(to_bf16_stochastic(INFINITY, 0xFFFF).bits, 0x7F80);
}

TEST(FromFloat, StoresBothTypes) {
  EXPECT_EQ(from_float<float>(1.00390625f), 1.00390625f);
  EXPECT_EQ(from_float<Bf16>(1.5f).bits, 0x3FC0);
}

}  // namespace
}  // namespace fp8::dtype
