/// E2M1, the format of FP4 elements: one sign bit and the magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 as codes 0 to 7.
/// Source: OCP Microscaling Formats (MX) 1.0, section 5.3.3.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fp8/dtype/dtype.h"
#include "fp8/dtype/element.h"

namespace fp8::dtype {

/// Elements in the size_of(t) bytes of a file: two of e2m1, else one.
constexpr std::int64_t packed(DType t) { return is_fp4(t) ? 2 : 1; }

/// Largest E2M1 magnitude.
inline constexpr float kE2m1Max = 6.0f;

/// Largest product of an E2M1 magnitude and an E4M3 block scale, 6 x 448: an NVFP4 tensor is scaled to it.
inline constexpr float kFp4Range = kE2m1Max * 448.0f;
/// Factor of the product of the amaxes of two NVFP4 tensors that scales the products of their elements.
inline constexpr float kFp4Alpha = 1.0f / (kFp4Range * kFp4Range);

/// Bytes of an E2M1 element that is packed with another, and of its part of the E4M3 scale of 16 elements.
inline constexpr double kFp4BytesOfElement = 0.5 + 1.0 / 16;

/// The f32 scale of an NVFP4 tensor, 2688 / amax, at most the largest float; 1 if the amax or the scale is 0; NaN for
/// NaN.
inline float fp4_scale(float amax) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const float scale = kFp4Range / amax;
  return amax == 0 || scale == 0 ? 1.0f : scale > kMost ? kMost : scale;
}

/// Distance from the E2M1 magnitude at or below `a` to the next, for 0 <= a < 8: half the power of two at or below `a`,
/// at least 0.5. NaN gives infinity.
FP8_HD inline float e2m1_step(float a) {
  const std::uint32_t power = std::bit_cast<std::uint32_t>(a) & 0x7F800000u, one = std::bit_cast<std::uint32_t>(1.0f);
  return std::bit_cast<float>(power > one ? power : one) * 0.5f;
}

/// Magnitude `a` >= 0 rounded to nearest, ties to the even code; 6 above 6; NaN stays NaN.
FP8_HD inline float round_to_e2m1(float a) {
  constexpr float kWhole = 12582912.0f;  // 1.5 x 2^23: a sum with this many steps is a number of steps
  const float below = a > kE2m1Max ? kE2m1Max : a, whole = e2m1_step(below) * kWhole;
  return (below + whole) - whole;
}

/// Magnitude `a` >= 0 rounded stochastically with 8 random bits: up with the probability (in 256ths) of its distance
/// from the magnitude below; 6 above 6; NaN stays NaN.
FP8_HD inline float round_to_e2m1(float a, std::uint8_t random) {
  const float below = a > kE2m1Max ? kE2m1Max : a;
  const float t = std::fma(static_cast<float>(random) * (1.0f / 256), e2m1_step(below), below);  // < 8
  // The magnitude at or below t has the first bit of its fraction, or none below 1.
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(t);
  const std::uint32_t down = bits & (t < 1.0f ? 0xFF800000u : 0xFFC00000u);
  return std::bit_cast<float>(t < 0.5f ? 0u : down);
}

/// Code of an E2M1 magnitude with the sign of `signed_as`; NaN gives the code of zero.
FP8_HD inline std::uint8_t e2m1_code(float magnitude, float signed_as) {
  const int above = (magnitude >= 0.5f) + (magnitude >= 1.0f) + (magnitude >= 1.5f) + (magnitude >= 2.0f) +
                    (magnitude >= 3.0f) + (magnitude >= 4.0f) + (magnitude >= 6.0f);
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(above) |
                                   ((std::bit_cast<std::uint32_t>(signed_as) >> 28) & 8u));
}

/// The value of the low four bits of `code`.
FP8_HD inline float e2m1_value(std::uint8_t code) {
  const auto m = static_cast<float>(code & 7u);
  const float magnitude = m < 4.0f ? 0.5f * m : m < 6.0f ? m - 2.0f : 2.0f * m - 8.0f;
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

}  // namespace fp8::dtype
