/// The scale of an amax, for one value; shared by host loops and kernels.
/// `scale` multiplies on quantization: q = cast(x * scale); its reciprocal multiplies the result of the GEMM.
/// Source: torchao float8_utils (amax_to_scale); checked bit for bit against tests/golden/casts/scales.h5.
#pragma once

#include <bit>
#include <cstdint>

#include "fp8/dtype/element.h"

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

}  // namespace fp8::quant
