// Every code of the small formats and the boundary values of the large ones, compared with float arithmetic.
#include "fp8/dtype/finite.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "fp8/dtype/convert.h"
#include "fp8_test.h"

namespace fp8::dtype {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}

// Each code alone, among zeros.
template <class Bits>
void every_code(DType type) {
  for (unsigned code = 0; code <= std::numeric_limits<Bits>::max(); ++code) {
    std::vector<Bits> values(7, static_cast<Bits>(type == DType::e8m0 ? 127 : 0));
    values[code % 7] = static_cast<Bits>(code);
    float value = 0;
    to_floats(type, &values[code % 7], std::span(&value, 1));
    ASSERT_EQ(all_finite(type, bytes_of(values)), std::isfinite(value)) << code;
    ASSERT_EQ(all_finite(type, bytes_of(values), true), std::isfinite(value) && !std::signbit(value)) << code;
  }
}

TEST(AllFinite, EveryCodeOfTheSmallFormats) {
  every_code<std::uint8_t>(DType::e4m3);
  every_code<std::uint8_t>(DType::e5m2);
  every_code<std::uint8_t>(DType::e8m0);
  every_code<std::uint16_t>(DType::bf16);
  every_code<std::uint16_t>(DType::f16);
}

template <class Float>
void borders(DType type) {
  using Limits = std::numeric_limits<Float>;
  const auto holds = [&](Float value, bool finite, bool unsigned_only) {
    std::vector<Float> values(1000, Float{1});
    values[913] = value;
    EXPECT_EQ(all_finite(type, bytes_of(values)), finite) << value;
    EXPECT_EQ(all_finite(type, bytes_of(values), true), unsigned_only) << value;
  };
  holds(Limits::max(), true, true);
  holds(Limits::denorm_min(), true, true);
  holds(-Limits::denorm_min(), true, false);
  holds(Limits::lowest(), true, false);
  holds(Limits::infinity(), false, false);
  holds(-Limits::infinity(), false, false);
  holds(Limits::quiet_NaN(), false, false);
  holds(std::copysign(Limits::quiet_NaN(), Float{-1}), false, false);
}

TEST(AllFinite, BoundaryValuesOfTheLargeFormats) {
  borders<float>(DType::f32);
  borders<double>(DType::f64);
}

TEST(AllFinite, AnyAlignmentIntegersAndNothing) {
  const std::vector<float> values{1, 2, INFINITY, 3};
  std::vector<std::byte> shifted(sizeof(float) * 4 + 1);
  std::copy_n(bytes_of(values).begin(), sizeof(float) * 4, shifted.begin() + 1);
  EXPECT_FALSE(all_finite(DType::f32, std::span(shifted).subspan(1)));
  EXPECT_TRUE(all_finite(DType::f32, std::span(shifted).subspan(1, 8)));
  EXPECT_TRUE(all_finite(DType::u8, bytes_of(values), true));
  EXPECT_TRUE(all_finite(DType::i64, bytes_of(values), true));
  EXPECT_TRUE(all_finite(DType::f32, {}));
  EXPECT_EQ(test::error_of([&] { (void)all_finite(DType::f32, std::span(shifted)); }),
            "values: not a whole number of elements");
}

TEST(BadScale, NamesTheFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto of = [](std::vector<float> scales, DType codes = DType::e4m3) { return bad_scale(scales, codes); };
  EXPECT_EQ(of({}), "");
  EXPECT_EQ(of({1, 1e-45F, 7e35F}), "");
  EXPECT_EQ(of({1, nan, 0}), "scale at index 1 is nan");
  EXPECT_EQ(of({0, nan}), "scale at index 0 is 0");
  EXPECT_EQ(of({2, 2, -0.5F}), "scale at index 2 is -0.5");
  EXPECT_EQ(of({INFINITY}), "scale at index 0 is inf");
  EXPECT_EQ(of({3e38F}), "scale at index 0 is 3e+38, and 224 times it is not finite in bf16");
  EXPECT_EQ(of({2e34F}, DType::e5m2), "scale at index 0 is 2e+34, and 28672 times it is not finite in bf16");
  // The largest bf16 is 1.9921875 x 2^127; a float above the middle to 2^128 is rounded to infinity.
  const float largest = 0x1.FEp127F / 224;
  EXPECT_EQ(of({largest}), "");
  EXPECT_NE(of({0x1.FF8p127F / 224}), "");
  EXPECT_EQ(of({0x1p120F}), "") << "the power of two at or above 3e38 / 448";
  EXPECT_EQ(of({0x1p113F}, DType::e5m2), "");
}

}  // namespace
}  // namespace fp8::dtype
