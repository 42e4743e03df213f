// The recipes: one row each. Another recipe is another row.
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
constexpr Cast kE4m3Vector{DType::e4m3, Granularity::row};

constexpr std::array<Recipe, 3> kRecipes{{
    {.name = "tensorwise",
     .x = {.columns = kE4m3Tensor, .rows = kE4m3Tensor},
     .w = {.columns = kE4m3Tensor, .rows = kE4m3Tensor},
     .dy = {.columns = kE5m2Tensor, .rows = kE5m2Tensor},
     .power_of_2 = false,
     .fast_accumulation = true,
     .fp8_all_gather = true,
     .source = "torchao Float8LinearConfig, recipe tensorwise"},
    {.name = "rowwise",
     .x = {.columns = kE4m3Vector, .rows = kE4m3Vector},
     .w = {.columns = kE4m3Vector, .rows = kE4m3Vector},
     .dy = {.columns = kE4m3Vector, .rows = kE4m3Vector},
     .power_of_2 = true,
     .fast_accumulation = true,
     .fp8_all_gather = false,
     .source = "torchao Float8LinearConfig, recipe rowwise"},
    {.name = "rowwise_with_gw_hp",
     .x = {.columns = kE4m3Vector, .rows = kHighPrecision},
     .w = {.columns = kE4m3Vector, .rows = kE4m3Tensor},
     .dy = {.columns = kE4m3Vector, .rows = kHighPrecision},
     .power_of_2 = true,
     .fast_accumulation = true,
     .fp8_all_gather = false,
     .source = "torchao Float8LinearConfig, recipe rowwise_with_gw_hp"},
}};

int is_fp8(const Cast& a, const Cast& b) {
  return a.granularity != Granularity::none && b.granularity != Granularity::none ? 1 : 0;
}

}  // namespace

int Recipe::fp8_gemms() const {
  return is_fp8(x.columns, w.columns) + is_fp8(dy.columns, w.rows) + is_fp8(dy.rows, x.rows);
}

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
