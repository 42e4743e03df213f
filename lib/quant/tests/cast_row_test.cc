// Casts of rows compared with single elements: all BF16 values, and floats next to every boundary, on both loops and
// for every instruction set. The bits of NaN are not compared, because a product of two NaN is either of them.
#include "cast_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "isas.h"

namespace fp8::quant {
namespace {

using dtype::E4m3Grid;
using dtype::E5m2Grid;

// All BF16 values in order of their bits, so that most pieces do not saturate and some do; an odd number.
std::vector<Bf16> every_bf16() {
  std::vector<Bf16> all;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) all.push_back(Bf16{static_cast<std::uint16_t>(bits)});
  all.push_back(Bf16{0x8001});
  return all;
}

// Floats halfway between adjacent values of the format and an ulp to either side, after small floats and before NaN.
template <class Grid>
std::vector<float> boundaries() {
  std::vector<float> all(2048, -0x1p-140f);  // a piece
  const auto value = [](std::uint8_t code) { return dtype::to_float(Bf16{dtype::decode_to_bf16<Grid>(code)}); };
  for (std::uint8_t code = 0; value(code) < Grid::kMax; ++code) {
    const float middle = (value(code) + value(static_cast<std::uint8_t>(code + 1))) / 2;
    for (const float x : {value(code), middle, std::nextafterf(middle, 0), std::nextafterf(middle, INFINITY)}) {
      all.push_back(x);
      all.push_back(-x);
    }
  }
  for (const float x : {Grid::kMax, 1.2f * Grid::kMax, INFINITY, NAN, -NAN}) all.push_back(x);
  return all;
}

// Equal, or both NaN.
template <class Grid>
void expect_code(std::uint8_t got, std::uint8_t wanted, float v) {
  constexpr auto is_nan = [](std::uint8_t code) {
    return std::isnan(dtype::to_float(Bf16{dtype::decode_to_bf16<Grid>(code)}));
  };
  ASSERT_TRUE(got == wanted || (is_nan(got) && is_nan(wanted))) << v;
}
void expect_value(Bf16 got, float wanted, float v) {
  const float value = dtype::to_float(got);
  ASSERT_TRUE(std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(wanted) ||
              (std::isnan(value) && std::isnan(wanted)))
      << v;
}

template <class Grid, class T>
void expect_single_elements(Isa isa, const std::vector<T>& x, float scale) {
  const auto n = static_cast<std::int64_t>(x.size());
  const std::vector<float> scales(x.size(), scale);
  std::vector<Bf16> one_scale(x.size()), by_scales(x.size());
  std::vector<std::uint8_t> bytes(x.size());
  const GridLoops<T>& loops = grid_loops<Grid, T>(isa);
  const RowCounts of_one = loops.bf16(x.data(), scale, one_scale.data(), n),
                  of_bytes = loops.bytes(x.data(), scale, bytes.data(), n),
                  of_scales = loops.bf16_scales(x.data(), scales.data(), by_scales.data(), n);
  RowCounts expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    volatile float v = dtype::to_float(x[i]) * scale;
    const float value = dtype::round_to_grid<Grid>(v);
    expect_code<Grid>(bytes[i], dtype::encode<Grid>(v), v);
    expect_value(one_scale[i], value, v);
    expect_value(by_scales[i], value, v);
    expected += {saturates<Grid>(v), value == 0 && dtype::to_float(x[i]) != 0};
  }
  for (const RowCounts& counts : {of_one, of_bytes, of_scales}) {
    EXPECT_EQ(counts.saturated, expected.saturated) << scale;
    EXPECT_EQ(counts.underflowed, expected.underflowed) << scale;
  }
}

template <class T>
void expect_single_elements(const std::vector<T>& x, float scale) {
  for (const Isa isa : test::isas()) {
    SCOPED_TRACE(name_of(isa));
    expect_single_elements<E4m3Grid>(isa, x, scale);
    expect_single_elements<E5m2Grid>(isa, x, scale);
  }
}

TEST(CastRow, EveryBf16EqualsASingleCast) {
  for (const float scale : {0x1p-100f, 0.3f, 1.0f, 447.9f, 0x1p100f, -1.0f, 0.0f, NAN})
    expect_single_elements(every_bf16(), scale);
}

TEST(CastRow, FloatsNextToBoundariesEqualSingleCasts) {
  for (const float scale : {1.0f, 0.5f, 0x1p-9f, 3.0f}) {
    for (std::vector<float> x : {boundaries<E4m3Grid>(), boundaries<E5m2Grid>()}) {
      if (scale != 3.0f)
        for (float& v : x) v /= scale;
      expect_single_elements(x, scale);
    }
  }
}

}  // namespace
}  // namespace fp8::quant
