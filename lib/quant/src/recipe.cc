// The table of recipes, one row each.
#include "fp8/quant/recipe.h"

#include <array>
#include <string>

#include "fp8/base/error.h"

namespace fp8::quant {
namespace {

using dtype::DType;

constexpr Cast kHighPrecision{};
constexpr Cast kE4m3Tensor{DType::e4m3, Granularity::tensor};
constexpr Cast kE5m2Tensor{DType::e5m2, Granularity::tensor};
constexpr Cast kE4m3Row{DType::e4m3, Granularity::row};
constexpr Cast kE4m3Row128{DType::e4m3, Granularity::row128};
constexpr Cast kE4m3Square128{DType::e4m3, Granularity::square128};
constexpr Cast kE4m3Row32{DType::e4m3, Granularity::row32};

constexpr std::array<Recipe, 5> kRecipes{{
    {.name = "tensorwise",
     .forward = {.x = kE4m3Tensor, .w = kE4m3Tensor},
     .dgrad = {.dy = kE5m2Tensor, .w = kE4m3Tensor},
     .wgrad = {.dy = kE5m2Tensor, .x = kE4m3Tensor},
     .scale_rule = ScaleRule::torchao,
     .power_of_2 = false,
     .fast_accumulation = true,
     .fp8_all_gather = true,
     .source = "torchao Float8LinearConfig, recipe tensorwise"},
    {.name = "rowwise",
     .forward = {.x = kE4m3Row, .w = kE4m3Row},
     .dgrad = {.dy = kE4m3Row, .w = kE4m3Row},
     .wgrad = {.dy = kE4m3Row, .x = kE4m3Row},
     .scale_rule = ScaleRule::torchao,
     .power_of_2 = true,
     .fast_accumulation = true,
     .fp8_all_gather = false,
     .source = "torchao Float8LinearConfig, recipe rowwise"},
    {.name = "rowwise_with_gw_hp",
     .forward = {.x = kE4m3Row, .w = kE4m3Row},
     .dgrad = {.dy = kE4m3Row, .w = kE4m3Tensor},
     .wgrad = {.dy = kHighPrecision, .x = kHighPrecision},
     .scale_rule = ScaleRule::torchao,
     .power_of_2 = true,
     .fast_accumulation = true,
     .fp8_all_gather = false,
     .source = "torchao Float8LinearConfig, recipe rowwise_with_gw_hp"},
    {.name = "blockwise",
     .forward = {.x = kE4m3Row128, .w = kE4m3Square128},
     .dgrad = {.dy = kE4m3Row128, .w = kE4m3Square128},
     .wgrad = {.dy = kE4m3Row128, .x = kE4m3Row128},
     .scale_rule = ScaleRule::blockwise,
     .power_of_2 = true,
     .fast_accumulation = false,
     .fp8_all_gather = false,
     .source = "Transformer Engine Float8BlockScaling; DeepSeek-V3"},
    {.name = "mxfp8",
     .forward = {.x = kE4m3Row32, .w = kE4m3Row32},
     .dgrad = {.dy = kE4m3Row32, .w = kE4m3Row32},
     .wgrad = {.dy = kE4m3Row32, .x = kE4m3Row32},
     .scale_rule = ScaleRule::mx,
     .power_of_2 = true,
     .fast_accumulation = false,
     .fp8_all_gather = false,
     .source = "OCP MX 1.0; Transformer Engine MXFP8BlockScaling; torchao, RCEIL"},
}};

// A GEMM is FP8 if both of its operands are.
int fp8_gemm(const Cast& a, const Cast& b) { return a.fp8() && b.fp8() ? 1 : 0; }

}  // namespace

int Recipe::fp8_gemms() const {
  return fp8_gemm(forward.x, forward.w) + fp8_gemm(dgrad.dy, dgrad.w) + fp8_gemm(wgrad.dy, wgrad.x);
}

bool Recipe::emulated_everywhere() const { return scale_rule == ScaleRule::mx; }

std::span<const Recipe> recipes() { return kRecipes; }

const Recipe& find_recipe(std::string_view name) {
  std::string names;
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name == name) return recipe;
    names += (names.empty() ? "" : ", ") + std::string(recipe.name);
  }
  throw Error("recipe '" + std::string(name) + "': unknown; one of " + names);
}

}  // namespace fp8::quant
