// The table of recipes and the rule from amax to scale.
#include "fp8/quant/recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "fp8/quant/quantize.h"
#include "fp8/quant/scale.h"
#include "fp8_test.h"

namespace fp8::quant {
namespace {

using dtype::DType;

// The casts of dy for dgrad and wgrad.
CastPair dy_of(const Recipe& r) { return {.last = r.dgrad.dy, .first = r.wgrad.dy}; }

TEST(Recipes, TensorwiseIsTheDefault) {
  const Recipe& r = recipes().front();
  EXPECT_EQ(r.name, "tensorwise");
  EXPECT_EQ(r.dgrad.dy, (Cast{DType::e5m2, Granularity::tensor}));
  EXPECT_EQ(r.wgrad.x, (Cast{DType::e4m3, Granularity::tensor}));
  for (const CastPair& c : {CastPair{r.forward.x, r.wgrad.x}, CastPair{r.forward.w, r.dgrad.w}, dy_of(r)})
    EXPECT_TRUE(c.shared()) << "both GEMMs use the same codes";
  EXPECT_FALSE(r.power_of_2);
  EXPECT_TRUE(r.fp8_all_gather);
  EXPECT_EQ(r.fp8_gemms(), 3);
}

TEST(Recipes, RowwiseCastsEachMatrixTwice) {
  const Recipe& r = find_recipe("rowwise");
  for (const CastPair& c : {CastPair{r.forward.x, r.wgrad.x}, CastPair{r.forward.w, r.dgrad.w}, dy_of(r)}) {
    EXPECT_EQ(c.last, (Cast{DType::e4m3, Granularity::row}));
    EXPECT_EQ(c.first, c.last);
    EXPECT_FALSE(c.shared()) << "scales of rows differ from scales of columns";
  }
  EXPECT_TRUE(r.power_of_2);
  EXPECT_FALSE(r.fp8_all_gather);
  EXPECT_EQ(r.fp8_gemms(), 3);
}

TEST(Recipes, RowwiseWithGwHpKeepsWgradInHighPrecision) {
  const Recipe& r = find_recipe("rowwise_with_gw_hp");
  EXPECT_EQ(r.forward.w, (Cast{DType::e4m3, Granularity::row}));
  EXPECT_EQ(r.dgrad.w, (Cast{DType::e4m3, Granularity::tensor}));
  EXPECT_EQ(r.dgrad.dy, (Cast{DType::e4m3, Granularity::row}));
  EXPECT_FALSE(r.wgrad.dy.fp8());
  EXPECT_FALSE(r.wgrad.x.fp8());
  EXPECT_TRUE(r.power_of_2);
  EXPECT_EQ(r.fp8_gemms(), 2);
}

TEST(Recipes, BlockwiseSharesTheCodesOfTheWeightOnly) {
  const Recipe& r = find_recipe("blockwise");
  EXPECT_EQ(r.forward.w, (Cast{DType::e4m3, Granularity::block128x128}));
  EXPECT_TRUE((CastPair{r.forward.w, r.dgrad.w}.shared()));
  for (const CastPair& c : {CastPair{r.forward.x, r.wgrad.x}, dy_of(r)}) {
    EXPECT_EQ(c.last, (Cast{DType::e4m3, Granularity::block1x128}));
    EXPECT_EQ(c.first, c.last);
    EXPECT_FALSE(c.shared());
  }
  EXPECT_EQ(r.scale_rule, ScaleRule::blockwise);
  EXPECT_TRUE(r.power_of_2);
  EXPECT_FALSE(r.fast_accumulation);
  EXPECT_FALSE(r.emulated_everywhere());
  EXPECT_EQ(r.fp8_gemms(), 3);
}

TEST(Recipes, Mxfp8CastsEachMatrixTwiceInBlocksOf32) {
  const Recipe& r = find_recipe("mxfp8");
  for (const CastPair& c : {CastPair{r.forward.x, r.wgrad.x}, CastPair{r.forward.w, r.dgrad.w}, dy_of(r)}) {
    EXPECT_EQ(c.last, (Cast{DType::e4m3, Granularity::block1x32}));
    EXPECT_EQ(c.first, c.last);
    EXPECT_FALSE(c.shared());
  }
  EXPECT_EQ(r.scale_rule, ScaleRule::mx);
  EXPECT_TRUE(r.emulated_everywhere());
  EXPECT_FALSE(find_recipe("tensorwise").emulated_everywhere());
  EXPECT_EQ(r.fp8_gemms(), 3);
}

TEST(Recipes, AnUnknownNameIsRefusedWithAListOfAll) {
  EXPECT_EQ(test::error_of([] { find_recipe("rowise"); }),
            "recipe 'rowise': unknown; one of tensorwise, rowwise, rowwise_with_gw_hp, current, delayed, blockwise, "
            "mxfp8, nvfp4");
}

TEST(Scale, OfSimpleAmaxes) {
  EXPECT_EQ(scale_from_amax(448.0f, 448.0f, false), 1.0f);
  EXPECT_EQ(scale_from_amax(3.5f, 448.0f, false), 128.0f);
  EXPECT_EQ(scale_from_amax(3.0f, 448.0f, true), 128.0f);
  EXPECT_EQ(scale_from_amax(57344.0f * 2, 57344.0f, true), 0.5f);
}

TEST(Scale, TinyAndNonFiniteAmaxes) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(scale_from_amax(0.0f, 448.0f, false), 448.0f / 1e-12f);
  EXPECT_EQ(scale_from_amax(1e-20f, 448.0f, false), 448.0f / 1e-12f);
  for (const bool power_of_2 : {false, true}) {
    EXPECT_EQ(scale_from_amax(inf, 448.0f, power_of_2), 0.0f);
    EXPECT_TRUE(std::isnan(scale_from_amax(nan, 448.0f, power_of_2)));
    EXPECT_TRUE(std::isnan(scale_from_amax(-nan, 448.0f, power_of_2)));
  }
}

TEST(Scale, OfCurrent) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(current_scale(3.0f, 448.0f, false), 448.0f / 3.0f);
  EXPECT_EQ(current_scale(3.0f, 448.0f, true), 128.0f);
  for (const float amax : {0.0f, inf, nan}) EXPECT_EQ(current_scale(amax, 448.0f, true), 1.0f);
  EXPECT_EQ(current_scale(0x1p-149f, 448.0f, false), kLargestFloat);
  EXPECT_EQ(current_scale(0x1p-149f, 448.0f, true), 0x1p127f);
}

TEST(Scale, PowerOfTwoIsTheOneBelow) {
  for (std::uint32_t b = 1; b < 0x7F80; ++b) {
    const float scale = scale_from_amax(dtype::to_float(dtype::Bf16{static_cast<std::uint16_t>(b)}), 448.0f, false);
    const double below = std::exp2(std::floor(std::log2(static_cast<double>(scale))));
    ASSERT_EQ(static_cast<double>(power_of_2_floor(scale)), below) << b;
  }
}

}  // namespace
}  // namespace fp8::quant
