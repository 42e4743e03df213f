/// A recipe lists, for the three GEMMs of a linear layer, how each operand is cast and how many of its elements share
/// a scale. Recipes are rows of a table, which `linear` and the preparation of weights read.
///   x [M, K] activations, w [N, K] weight, dy [M, N] gradient of the output
///   forward y = x w^T contracts K; dgrad dx = dy w contracts N; wgrad dw = dy^T x contracts M
/// Source: torchao float8 recipes (config.py); fp8-recipes(7).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fp8/dtype/dtype.h"

namespace fp8::quant {

/// The elements that share a scale. "Row" is an index of the dimension that is not contracted, whichever that is.
enum class Granularity : std::uint8_t {
  none,          ///< no scale: high precision
  tensor,        ///< all
  row,           ///< one row (axiswise)
  block1x128,    ///< 128 along the contracted dimension of one row; the last block of a row may be shorter
  block128x128,  ///< 128 x 128; the last blocks of both dimensions may be shorter
  block1x32,     ///< 32 along the contracted dimension of one row (MX)
  block1x16,     ///< 16 along the contracted dimension of one row, under one scale of the tensor (NVFP4)
  block16x16,    ///< 16 x 16, under one scale of the tensor (NVFP4)
};

/// How a scale follows from an amax, and which amax it is.
enum class ScaleRule : std::uint8_t {
  torchao,    ///< max / max(amax, 1e-12) of these elements; a NaN or infinite amax propagates
  current,    ///< max / amax of these elements; 1 if the amax is 0 or infinite; the amax skips NaN
  delayed,    ///< known before the cast, from the history of amaxes of earlier steps, which skip NaN
  blockwise,  ///< like current, but an overflow becomes the largest finite value of the source's format
  mx,         ///< E8M0: amax / 448 rounded up to a power of two; NaN propagates
  nvfp4,      ///< E4M3 scales of blocks under one f32 scale of the tensor, see fp4.h; NaN propagates
};

/// How one operand of one GEMM is cast. Granularity::none leaves it in high precision.
struct Cast {
  dtype::DType format = dtype::DType::bf16;     ///< e4m3, e5m2 or e2m1 (bf16 with Granularity::none)
  Granularity granularity = Granularity::none;  ///< elements that share a scale
  bool hadamard = false;    ///< the Hadamard transform along the contracted dimension comes before the cast; e2m1 only
  bool stochastic = false;  ///< rounds stochastically, by CastOptions::random; e2m1 only
  /// Whether the operand is quantized, to FP8 or FP4.
  bool fp8() const { return granularity != Granularity::none; }
  bool operator==(const Cast&) const = default;
};

/// Casts of y = x w^T.
struct ForwardCasts {
  Cast x;  ///< contracted along K, its last dimension
  Cast w;  ///< contracted along K, its last dimension
};

/// Casts of dx = dy w.
struct DgradCasts {
  Cast dy;  ///< contracted along N, its last dimension
  Cast w;   ///< contracted along N, its first dimension
};

/// Casts of dw = dy^T x.
struct WgradCasts {
  Cast dy;  ///< contracted along M, its first dimension
  Cast x;   ///< contracted along M, its first dimension
};

/// GEMMs of a linear that run in FP8 (FP4 under recipe nvfp4) where its recipe does so; --fp8-gemms.
struct GemmSet {
  bool forward = true;  ///< y = x w^T
  bool dgrad = true;    ///< dx = dy w
  bool wgrad = true;    ///< dw = dy^T x
  bool operator==(const GemmSet&) const = default;
};

/// "forward,dgrad,wgrad", or those of them that are in the set.
std::string name_of(const GemmSet& set);
/// Inverse of name_of(), in any order; nothing if it is no such list, or empty.
std::optional<GemmSet> parse_gemm_set(std::string_view text);

/// One recipe.
struct Recipe {
  std::string_view name;  ///< value of --recipe
  ForwardCasts forward;   ///< operands of y = x w^T
  DgradCasts dgrad;       ///< operands of dx = dy w
  WgradCasts wgrad;       ///< operands of dw = dy^T x
  ScaleRule scale_rule;   ///< rule for the scales of all casts of the recipe
  bool power_of_2;        ///< default of --power-of-2-scales
  bool
      fast_accumulation;  ///< whether the forward GEMM uses fast accumulation on tensor cores; dgrad and wgrad never do
  bool fp8_all_gather;    ///< whether FP8 all-gather casts from the master weights, with scales that are known before
  std::string_view source;  ///< where the recipe comes from
  /// dgrad uses the codes of forward, whose scales of rows are folded into dy before its cast (fold.h).
  bool single_copy = false;

  /// FP8 or FP4 GEMMs of one linear layer in one forward and backward, of those in `set`: 3 at most, or 2 if wgrad is
  /// computed in high precision.
  int fp8_gemms(const GemmSet& set = {}) const;

  /// Whether a weight is cast with a scale for each row in forward, and anew for dgrad.
  bool casts_rows() const { return forward.w.granularity == Granularity::row && !single_copy; }

  /// Whether the codes of a weight are cast with a scale for each block of 128 x 128, which serve forward and dgrad.
  bool casts_squares() const { return forward.w.granularity == Granularity::block128x128; }

  /// Whether sharded weights can be gathered as codes: with fp8_all_gather those of the master weights; otherwise those
  /// of compute weights, which are the codes of a cast after the gather.
  bool gathers_codes() const { return fp8_all_gather || casts_rows() || casts_squares(); }

  /// Whether its GEMMs multiply FP8 or FP4 values as bf16 on every device, because Hopper has neither MX nor FP4.
  bool emulated_everywhere() const;

  /// Whether its GEMMs multiply FP4 values; otherwise FP8.
  bool fp4() const { return forward.x.format == dtype::DType::e2m1; }
};

/// Every recipe, the default first.
std::span<const Recipe> recipes();

/// The variant of the recipe whose gradients are e4m3 too; the recipe itself if its gradients are not e5m2.
const Recipe& with_e4m3_gradients(const Recipe& recipe);

/// The variant of nvfp4 with or without stochastic rounding of gradients and the Hadamard transform; another recipe
/// itself.
const Recipe& with_fp4_options(const Recipe& recipe, bool stochastic_gradients, bool hadamard);

/// The variant of rowwise with one FP8 copy of each weight. Throws Error for another recipe.
const Recipe& with_single_copy(const Recipe& recipe);

/// The recipe of that name; throws Error that lists the names.
const Recipe& find_recipe(std::string_view name);

}  // namespace fp8::quant
