/// The scale of an amax, for one value; shared by host loops and kernels.
/// `scale` multiplies on quantization: q = cast(x * scale); its reciprocal multiplies the result of the GEMM.
/// Sources: torchao float8_utils (amax_to_scale), Transformer Engine (current_scaling.cu, delayed_scaling.cu,
/// Float8BlockScaling), OCP MX 1.0 and torchao (RCEIL); checked bit for bit against tests/golden/casts.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "fp8/dtype/element.h"
#include "fp8/quant/recipe.h"

namespace fp8::quant {

/// Keeps sign and exponent of a scale, so that multiplying by it is exact; NaN stays NaN.
FP8_HD inline float power_of_2_floor(float scale) {
  return scale != scale ? scale : std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & 0xFF800000u);
}

/// max / max(amax, 1e-12), plain IEEE division in f32; optionally rounded down to a power of two. An infinite amax
/// gives 0, a NaN gives NaN, so that the step is detected as non-finite.
FP8_HD inline float scale_from_amax(float amax, float max, bool power_of_2) {
  const float floor = 1e-12f;
  const float scale = max / (amax < floor ? floor : amax);  // NaN compares false and passes through
  return power_of_2 ? power_of_2_floor(scale) : scale;
}

/// Extent of the blocks of elements that share a scale.
struct BlockExtent {
  std::int64_t along = 0;   ///< elements along the contracted dimension; 0: the granularity has no blocks
  std::int64_t across = 0;  ///< elements along the other dimension
};

/// Blocks of the granularities with blocks; {0, 0} for the others.
constexpr BlockExtent block_extent(Granularity granularity) {
  switch (granularity) {
    case Granularity::block1x128:
      return {128, 1};
    case Granularity::block128x128:
      return {128, 128};
    case Granularity::block1x32:
      return {32, 1};
    case Granularity::block1x16:
      return {16, 1};
    case Granularity::block16x16:
      return {16, 16};
    case Granularity::none:
    case Granularity::tensor:
    case Granularity::row:
      break;
  }
  return {};
}

/// A scale and its f32 reciprocal.
struct ScaleFactors {
  float scale;    ///< multiplies on quantization
  float inverse;  ///< multiplies codes
};

/// The rule from the amax of a block to its scale: ScaleRule::mx for blocks of 32, ScaleRule::blockwise for those of
/// 128.
struct BlockRule {
  float max;        ///< largest value of the FP8 format
  float largest;    ///< largest finite value of the source's format, which replaces a scale that overflows; not for mx
  bool mx;          ///< ScaleRule::mx; the amax then propagates NaN, else it skips NaN
  bool power_of_2;  ///< rounds scales down to powers of two; mx always rounds inverse scales up to powers of two

  /// blockwise: max / amax, 1 if the amax is 0 or infinite; a power of two may be up to 2^127, its inverse 2^-127.
  /// mx: the inverse is amax / max rounded up to a power of two, 2^-127 for amax 0, 2^127 for infinity, NaN for NaN.
  FP8_HD ScaleFactors operator()(float amax) const {
    constexpr float kInfinity = std::bit_cast<float>(0x7F800000u);
    if (mx) {
      const std::uint8_t code = dtype::to_e8m0_round_up(amax * (1.0f / max));
      const auto reciprocal = static_cast<std::uint8_t>(254 - code);  // 0xFF for the NaN code 0xFF
      return {dtype::from_e8m0(reciprocal), dtype::from_e8m0(code)};
    }
    const float quotient = max / amax;
    const float finite = quotient == kInfinity ? largest : quotient;
    const float scale = amax == 0 || amax == kInfinity ? 1.0f : finite;
    const float rounded = power_of_2 ? power_of_2_floor(scale) : scale;
    return {rounded, 1.0f / rounded};
  }
};

/// The rule of a block granularity for a source of type T (float or Bf16) and an FP8 format with the largest value
/// `max`.
template <class T>
constexpr BlockRule block_rule(Granularity granularity, float max, bool power_of_2) {
  constexpr std::uint32_t kLargest = sizeof(T) == 2 ? 0x7F7F0000u : 0x7F7FFFFFu;
  return {max, std::bit_cast<float>(kLargest), granularity == Granularity::block1x32, power_of_2};
}

/// The largest finite f32.
inline constexpr float kLargestFloat = std::numeric_limits<float>::max();

/// max / amax, plain IEEE division in f32, an overflow becoming the largest finite f32; optionally rounded down to a
/// power of two. 1 if the amax is 0, infinite or NaN. Source: TE compute_scale_from_amax.
FP8_HD inline float current_scale(float amax, float max, bool power_of_2) {
  if (!(amax > 0.0f && amax <= kLargestFloat)) return 1.0f;
  const float quotient = max / amax, scale = quotient > kLargestFloat ? kLargestFloat : quotient;
  return power_of_2 ? power_of_2_floor(scale) : scale;
}

/// The scale of an amax under a rule. A delayed scale is known before the cast; without one, its rule is that of
/// current.
FP8_HD inline float scale_by_rule(ScaleRule rule, float amax, float max, bool power_of_2) {
  return rule == ScaleRule::torchao ? scale_from_amax(amax, max, power_of_2) : current_scale(amax, max, power_of_2);
}

/// Whether an amax under the rule leaves out NaN.
FP8_HD inline bool skips_nan(ScaleRule rule) {
  return rule != ScaleRule::torchao && rule != ScaleRule::mx && rule != ScaleRule::nvfp4;
}

}  // namespace fp8::quant
