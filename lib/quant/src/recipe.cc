// The table of recipes, one row each.
#include "fp8/quant/recipe.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "fp8/base/error.h"

namespace fp8::quant {
namespace {

using dtype::DType;

constexpr Cast kHighPrecision{};
constexpr Cast kE4m3Tensor{DType::e4m3, Granularity::tensor};
constexpr Cast kE5m2Tensor{DType::e5m2, Granularity::tensor};
constexpr Cast kE4m3Row{DType::e4m3, Granularity::row};
constexpr Cast kE4m3Block1x128{DType::e4m3, Granularity::block1x128};
constexpr Cast kE4m3Block128x128{DType::e4m3, Granularity::block128x128};
constexpr Cast kE4m3Block1x32{DType::e4m3, Granularity::block1x32};

constexpr Cast kE2m1Block1x16{DType::e2m1, Granularity::block1x16};
constexpr Cast kE2m1Block16x16{DType::e2m1, Granularity::block16x16};
// With the options of recipe nvfp4.
constexpr Cast e2m1_block1x16(bool hadamard, bool stochastic) {
  return {DType::e2m1, Granularity::block1x16, hadamard, stochastic};
}

constexpr std::array<Recipe, 8> kRecipes{{
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
    {.name = "current",
     .forward = {.x = kE4m3Tensor, .w = kE4m3Tensor},
     .dgrad = {.dy = kE5m2Tensor, .w = kE4m3Tensor},
     .wgrad = {.dy = kE5m2Tensor, .x = kE4m3Tensor},
     .scale_rule = ScaleRule::current,
     .power_of_2 = false,
     .fast_accumulation = true,
     .fp8_all_gather = true,
     .source = "Transformer Engine Float8CurrentScaling"},
    {.name = "delayed",
     .forward = {.x = kE4m3Tensor, .w = kE4m3Tensor},
     .dgrad = {.dy = kE5m2Tensor, .w = kE4m3Tensor},
     .wgrad = {.dy = kE5m2Tensor, .x = kE4m3Tensor},
     .scale_rule = ScaleRule::delayed,
     .power_of_2 = false,
     .fast_accumulation = true,
     .fp8_all_gather = true,
     .source = "Transformer Engine DelayedScaling"},
    {.name = "blockwise",
     .forward = {.x = kE4m3Block1x128, .w = kE4m3Block128x128},
     .dgrad = {.dy = kE4m3Block1x128, .w = kE4m3Block128x128},
     .wgrad = {.dy = kE4m3Block1x128, .x = kE4m3Block1x128},
     .scale_rule = ScaleRule::blockwise,
     .power_of_2 = true,
     .fast_accumulation = false,
     .fp8_all_gather = false,
     .source = "Transformer Engine Float8BlockScaling; DeepSeek-V3"},
    {.name = "mxfp8",
     .forward = {.x = kE4m3Block1x32, .w = kE4m3Block1x32},
     .dgrad = {.dy = kE4m3Block1x32, .w = kE4m3Block1x32},
     .wgrad = {.dy = kE4m3Block1x32, .x = kE4m3Block1x32},
     .scale_rule = ScaleRule::mx,
     .power_of_2 = true,
     .fast_accumulation = false,
     .fp8_all_gather = false,
     .source = "OCP MX 1.0; Transformer Engine MXFP8BlockScaling; torchao, RCEIL"},
    {.name = "nvfp4",
     .forward = {.x = kE2m1Block1x16, .w = kE2m1Block16x16},
     .dgrad = {.dy = e2m1_block1x16(false, true), .w = kE2m1Block16x16},
     .wgrad = {.dy = e2m1_block1x16(true, true), .x = e2m1_block1x16(true, false)},
     .scale_rule = ScaleRule::nvfp4,
     .power_of_2 = false,
     .fast_accumulation = false,
     .fp8_all_gather = false,
     .source = "Transformer Engine NVFP4BlockScaling; torchao"},
}};

// Recipe nvfp4 with each of its options: [stochastic gradients][Hadamard transform].
constexpr std::array<std::array<Recipe, 2>, 2> kFp4Recipes = [] {
  std::array<std::array<Recipe, 2>, 2> all{};
  for (std::size_t stochastic = 0; stochastic < 2; ++stochastic)
    for (std::size_t hadamard = 0; hadamard < 2; ++hadamard) {
      Recipe& r = all[stochastic][hadamard] = kRecipes.back();
      r.dgrad.dy = e2m1_block1x16(false, stochastic == 1);
      r.wgrad = {e2m1_block1x16(hadamard == 1, stochastic == 1), e2m1_block1x16(hadamard == 1, false)};
    }
  return all;
}();

constexpr bool has_e5m2_gradients(const Recipe& r) { return r.dgrad.dy.format == DType::e5m2; }

// --fp8-format e4m3: kRecipes with E4M3 where gradients are E5M2.
constexpr std::array<Recipe, kRecipes.size()> kE4m3Recipes = [] {
  std::array<Recipe, kRecipes.size()> all = kRecipes;
  for (Recipe& r : all)
    if (has_e5m2_gradients(r)) r.dgrad.dy = r.wgrad.dy = kE4m3Tensor;
  return all;
}();

// --rowwise-single-copy.
constexpr Recipe kRowwiseSingleCopy = [] {
  Recipe r = kRecipes[1];
  r.fp8_all_gather = r.single_copy = true;
  r.source = "rowwise, dgrad with the codes of forward";
  return r;
}();

// A GEMM is FP8 if both of its operands are.
int fp8_gemm(const Cast& a, const Cast& b) { return a.fp8() && b.fp8() ? 1 : 0; }

}  // namespace

int Recipe::fp8_gemms(const GemmSet& set) const {
  return (set.forward ? fp8_gemm(forward.x, forward.w) : 0) + (set.dgrad ? fp8_gemm(dgrad.dy, dgrad.w) : 0) +
         (set.wgrad ? fp8_gemm(wgrad.dy, wgrad.x) : 0);
}

std::string name_of(const GemmSet& set) {
  std::string text;
  for (const auto& [in_set, name] :
       {std::pair{set.forward, "forward"}, std::pair{set.dgrad, "dgrad"}, std::pair{set.wgrad, "wgrad"}})
    if (in_set) text += (text.empty() ? "" : ",") + std::string(name);
  return text;
}

std::optional<GemmSet> parse_gemm_set(std::string_view text) {
  GemmSet set{false, false, false};
  while (true) {
    const std::string_view name = text.substr(0, text.find(','));
    bool& gemm = name == "forward" ? set.forward : name == "dgrad" ? set.dgrad : set.wgrad;
    if (gemm || (name != "forward" && name != "dgrad" && name != "wgrad")) return std::nullopt;
    gemm = true;
    if (name.size() == text.size()) return set;
    text.remove_prefix(name.size() + 1);
  }
}

bool Recipe::emulated_everywhere() const { return scale_rule == ScaleRule::mx || fp4(); }

std::span<const Recipe> recipes() { return kRecipes; }

const Recipe& with_e4m3_gradients(const Recipe& recipe) {
  const auto* const found = std::ranges::find(kE4m3Recipes, recipe.name, &Recipe::name);
  return has_e5m2_gradients(recipe) ? *found : recipe;
}

const Recipe& with_fp4_options(const Recipe& recipe, bool stochastic_gradients, bool hadamard) {
  return recipe.fp4() ? kFp4Recipes[stochastic_gradients ? 1 : 0][hadamard ? 1 : 0] : recipe;
}

const Recipe& with_single_copy(const Recipe& recipe) {
  if (recipe.name != kRowwiseSingleCopy.name) throw Error("recipe " + std::string(recipe.name) + ": not rowwise");
  return kRowwiseSingleCopy;
}

const Recipe& find_recipe(std::string_view name) {
  std::string names;
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name == name) return recipe;
    names += (names.empty() ? "" : ", ") + std::string(recipe.name);
  }
  throw Error("recipe '" + std::string(name) + "': unknown; one of " + names);
}

}  // namespace fp8::quant
