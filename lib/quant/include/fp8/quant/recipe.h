/// A recipe says, for the three matrices of a linear layer and both directions they are contracted in, what is cast to
/// what and how scales are shared. It is data: a row in a table, read by `linear` and by what prepares weights.
///   x [M, K] activations, w [N, K] weight, dy [M, N] gradient of the output
///   forward y = x w^T contracts K; dgrad dx = dy w contracts N; wgrad dw = dy^T x contracts M
/// Source: torchao float8 recipes (config.py); fp8-recipes(7).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "fp8/dtype/dtype.h"

namespace fp8::quant {

/// How many elements share a scale. `row`: one scale for each index of the dimension that is not contracted.
enum class Granularity : std::uint8_t { none, tensor, row };

/// How one operand of one GEMM is cast. Granularity::none leaves it in high precision.
struct Cast {
  dtype::DType format = dtype::DType::bf16;     ///< e4m3 or e5m2 (bf16 with Granularity::none)
  Granularity granularity = Granularity::none;  ///< who shares a scale
  bool operator==(const Cast&) const = default;
};

/// Both uses of one matrix: in the GEMM that contracts its columns (last dimension) and in the one that contracts its
/// rows.
struct Casts {
  Cast columns;  ///< x: forward, w: forward, dy: dgrad
  Cast rows;     ///< x: wgrad, w: dgrad, dy: wgrad
  /// Whether one set of codes serves both (same format, one scale for the tensor).
  bool shared() const { return columns == rows && columns.granularity == Granularity::tensor; }
};

/// One recipe.
struct Recipe {
  std::string_view name;   ///< as in --recipe
  Casts x, w, dy;          ///< the three matrices
  bool power_of_2;         ///< default of --power-of-2-scales
  bool fast_accumulation;  ///< of the forward GEMM on tensor cores; dgrad and wgrad never
  bool fp8_all_gather;  ///< whether sharded weights may travel as codes (one scale a weight, known before the gather)
  std::string_view source;  ///< where the recipe comes from

  /// FP8 GEMMs of one linear layer in one forward and backward: 3, or 2 where wgrad stays in high precision.
  int fp8_gemms() const;
};

/// Every recipe, the default first.
std::span<const Recipe> recipes();

/// The recipe of that name; throws Error that lists the names.
const Recipe& find_recipe(std::string_view name);

}  // namespace fp8::quant
