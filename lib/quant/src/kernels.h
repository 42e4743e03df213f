/// Magnitudes and what a cast loses, element by element. Private to this crate.
#pragma once

#include <bit>
#include <cstdint>

#include "fp8/dtype/element.h"

namespace fp8::quant {

using dtype::Bf16;

/// Bits of |v|. As integers they order as the magnitudes do, infinity above all finite values and NaN above infinity: a
/// maximum over them propagates NaN and does not depend on the order.
FP8_HD inline std::uint16_t magnitude_bits(Bf16 v) { return v.bits & 0x7FFFu; }
/// The same of a float.
FP8_HD inline std::uint32_t magnitude_bits(float v) { return std::bit_cast<std::uint32_t>(v) & 0x7FFFFFFFu; }
/// The magnitude with these bits.
FP8_HD inline float from_magnitude(std::uint16_t bits) { return dtype::to_float(Bf16{bits}); }
/// The same of a float's bits.
FP8_HD inline float from_magnitude(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Type of magnitude_bits(T).
template <class T>
using Magnitude = decltype(magnitude_bits(T{}));

/// Whether casting v (scaled) lost something by clamping: above the largest value by more than half the spacing there;
/// an amax that its own scale takes an ulp too far is no loss. NaN: no.
template <class Grid>
FP8_HD inline bool clamped(float v) {
  constexpr float kClamped =
      std::bit_cast<float>(std::bit_cast<std::uint32_t>(Grid::kMax) + (1u << (22 - Grid::kFractionBits)));
  return from_magnitude(magnitude_bits(v)) > kClamped;
}

/// Whether v (scaled) becomes zero and `from` was none; half the smallest subnormal still rounds to zero. NaN: no.
template <class Grid>
FP8_HD inline bool vanished(float v, float from) {
  constexpr float kVanishing = std::bit_cast<float>((Grid::kMinExponent - Grid::kFractionBits - 1) << 23);
  return (from_magnitude(magnitude_bits(v)) <= kVanishing) & (from != 0.0f);  // & rather than &&: no branch
}

}  // namespace fp8::quant
