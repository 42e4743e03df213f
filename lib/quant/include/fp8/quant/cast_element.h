/// Magnitudes, saturation and underflow of one element. Private to this crate.
#pragma once

#include <bit>
#include <cstdint>

#include "fp8/dtype/element.h"

namespace fp8::quant {

using dtype::Bf16;

/// Bits of |v|. Compared as integers the bits order like the magnitudes, with infinity above all finite values and NaN
/// above infinity: their maximum propagates NaN and does not depend on the order.
FP8_HD inline std::uint16_t magnitude_bits(Bf16 v) { return v.bits & 0x7FFFu; }
/// Bits of |v|.
FP8_HD inline std::uint32_t magnitude_bits(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7FFFFFFFu; }
/// The magnitude with these bits.
FP8_HD inline float from_magnitude(std::uint16_t bits) { return dtype::to_float(Bf16{bits}); }
/// The magnitude with these bits.
FP8_HD inline float from_magnitude(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Type of magnitude_bits(T).
template <class T>
using Magnitude = decltype(magnitude_bits(T{}));

/// Whether the cast of v (scaled) saturates: |v| exceeds the largest value by more than half the spacing there. An amax
/// that its own scale moves past the largest value by an ulp does not count. NaN: no.
template <class Grid>
FP8_HD inline bool saturates(float v) {
  constexpr float kLimit =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(Grid::kMax) + (1u << (22 - Grid::kFractionBits)));
  return from_magnitude(magnitude_bits(v)) > kLimit;
}

/// Whether v, the scaled `from`, is cast to zero and `from` is not zero. Half the smallest subnormal rounds to zero.
/// NaN: no.
template <class Grid>
FP8_HD inline bool underflows(float v, float from) {
  constexpr float kLimit = std::bit_cast<float>((Grid::kMinExponent - Grid::kFractionBits - 1) << 23);
  return (from_magnitude(magnitude_bits(v)) <= kLimit) & (from != 0.0f);  // & rather than &&: no branch
}

}  // namespace fp8::quant
