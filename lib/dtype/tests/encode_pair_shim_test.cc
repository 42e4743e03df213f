// encode_pair() with the model of the conversion instruction in tests/support/cuda_shim.h, which follows the PTX ISA,
// against encode(): all BF16 values, and floats around every value and every tie of both formats.
#include "cuda_shim.h"
//
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "fp8/dtype/encode_pair.h"

namespace fp8::dtype {
namespace {

// Whether two codes are the same, or both NaN.
template <class Grid>
bool same_code(std::uint32_t a, std::uint32_t b) {
  const auto value = [](std::uint32_t code) {
    const auto byte = static_cast<std::uint8_t>(code);
    return std::is_same_v<Grid, E4m3Grid> ? from_e4m3(byte) : from_e5m2(byte);
  };
  return a == b || (std::isnan(value(a)) && std::isnan(value(b)));
}

// Every float must have the code of encode() in both bytes, whatever the other byte is.
template <class Grid>
void check(float v) {
  for (const float other : {0.0f, -1.5f, std::numeric_limits<float>::quiet_NaN()}) {
    const std::uint32_t low = encode_pair<Grid>(v, other), high = encode_pair<Grid>(other, v);
    ASSERT_LE(low, 0xFFFFu);
    ASSERT_TRUE(same_code<Grid>(low & 0xFFu, encode<Grid>(v))) << v << " " << low;
    ASSERT_TRUE(same_code<Grid>(low >> 8, encode<Grid>(other))) << v << " " << low;
    ASSERT_TRUE(same_code<Grid>(high >> 8, encode<Grid>(v))) << v << " " << high;
  }
}

template <class Grid>
class EncodePair : public testing::Test {};
using Grids = testing::Types<E4m3Grid, E5m2Grid>;
TYPED_TEST_SUITE(EncodePair, Grids);

TYPED_TEST(EncodePair, EveryBf16Value) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits)
    check<TypeParam>(to_float(Bf16{static_cast<std::uint16_t>(bits)}));
}

// Values, ties and their neighbours among the floats, also those above the largest value where rounding to nearest
// would leave the format.
TYPED_TEST(EncodePair, FloatsAroundValuesAndTies) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> points{0.0f, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min(),
                            std::numeric_limits<float>::max(), inf};
  float previous = 0.0f;
  for (int exponent = static_cast<int>(TypeParam::kMinExponent) - 127; exponent <= 17; ++exponent)
    for (int fraction =
             exponent == static_cast<int>(TypeParam::kMinExponent) - 127 ? -(1 << TypeParam::kFractionBits) + 1 : 0;
         fraction < 1 << TypeParam::kFractionBits; ++fraction) {
      const float v = std::ldexp(static_cast<float>((1 << TypeParam::kFractionBits) + fraction),
                                 exponent - TypeParam::kFractionBits);
      points.push_back(v);
      points.push_back(0.5f * (previous + v));  // exact
      previous = v;
    }
  for (const float p : points)
    for (const float v : {p, std::nextafter(p, inf), std::nextafter(p, 0.0f)}) {
      check<TypeParam>(v);
      check<TypeParam>(-v);
    }
}

// The model against the formats' definition: the code of the value of a code is that code.
TYPED_TEST(EncodePair, EveryCode) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    const float v = std::is_same_v<TypeParam, E4m3Grid> ? from_e4m3(byte) : from_e5m2(byte);
    if (std::isfinite(v)) {
      EXPECT_EQ(encode_pair<TypeParam>(v, v), code | code << 8);
    } else {
      const std::uint32_t expected = std::isnan(v) ? 0x7Fu : std::is_same_v<TypeParam, E4m3Grid> ? 0x7Eu : 0x7Bu;
      EXPECT_EQ(encode_pair<TypeParam>(v, 0.0f) & 0x7Fu, expected);
    }
  }
}

}  // namespace
}  // namespace fp8::dtype
