/// Bodies of the FP8 functions of element.h, and templates over the format for kernels that support both. Included only
/// by element.h. No branches, no tables, no multiplication followed by an addition (which a compiler may fuse): every
/// function is a few integer and float operations that compile to vector instructions or GPU selects. The
/// functions need round-to-nearest mode and subnormals that are not flushed.
#pragma once

#include <bit>
#include <cstdint>

#include "fp8/dtype/element.h"

namespace fp8::dtype {

/// Parameters of E4M3FN for the templates below.
struct E4m3Grid {
  static constexpr int kFractionBits = 3;  ///< stored fraction bits
  static constexpr std::uint32_t kMinExponent =
      121u;                              ///< exponent field, as a float, of the smallest normal value, 2^-6
  static constexpr float kMax = 448.0f;  ///< largest finite value
};

/// Parameters of E5M2 for the templates below.
struct E5m2Grid {
  static constexpr int kFractionBits = 2;  ///< stored fraction bits
  static constexpr std::uint32_t kMinExponent =
      113u;                                ///< exponent field, as a float, of the smallest normal value, 2^-14
  static constexpr float kMax = 57344.0f;  ///< largest finite value
};

/// |v| saturated at the format's largest value; NaN stays NaN.
template <class Grid>
FP8_HD inline float clamped_magnitude(float v) {
  const float a = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & 0x7FFFFFFFu);
  return Grid::kMax < a ? Grid::kMax : a;  // NaN compares false and passes through
}

/// Exponent bits of a saturated magnitude, in position, at least those of the smallest normal value.
template <class Grid>
FP8_HD inline std::uint32_t grid_exponent(float a) {
  const std::uint32_t e = std::bit_cast<std::uint32_t>(a) & 0x7F800000u;
  return e < (Grid::kMinExponent << 23) ? Grid::kMinExponent << 23 : e;
}

/// A power of two whose unit in the last place is the spacing of the grid at exponent bits `e`: adding it rounds to the
/// grid, ties to even. For NaN the exponent bits wrap around to a finite number, and NaN plus a finite number is NaN.
template <class Grid>
FP8_HD inline float rounding_constant(std::uint32_t e) {
  return std::bit_cast<float>(e + (static_cast<std::uint32_t>(23 - Grid::kFractionBits) << 23));
}

/// Bits of the magnitude `a`, at most the largest value or NaN, rounded to nearest even on the grid.
template <class Grid>
FP8_HD inline std::uint32_t rounded_magnitude(float a) {
  const float c = rounding_constant<Grid>(grid_exponent<Grid>(a));
  return std::bit_cast<std::uint32_t>((a + c) - c);
}

/// Code of rounded_magnitude(a); for NaN an arbitrary number below 2^16.
template <class Grid>
FP8_HD inline std::uint32_t magnitude_code(float a) {
  constexpr int kShift = 23 - Grid::kFractionBits;
  constexpr std::uint32_t kSmallest = (Grid::kMinExponent + static_cast<std::uint32_t>(kShift)) << Grid::kFractionBits;
  // The fraction bits of the sum are the number of grid spacings in a. For a normal value this includes the hidden bit,
  // which carries into the exponent.
  const std::uint32_t sum = std::bit_cast<std::uint32_t>(a + rounding_constant<Grid>(grid_exponent<Grid>(a)));
  return (sum + (sum >> kShift) - kSmallest) & 0xFFFFu;
}

/// v saturated and rounded to nearest even on the grid, as a float; NaN stays NaN; the sign of zero is kept.
template <class Grid>
FP8_HD inline float round_to_grid(float v) {
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(v) & 0x80000000u;
  return std::bit_cast<float>(rounded_magnitude<Grid>(clamped_magnitude<Grid>(v)) | sign);
}

/// Code of round_to_grid(v) in the low byte, the other bits zero; NaN gives 0x7F with v's sign. On a CPU, loops that
/// narrow the codes in a separate pass are twice as fast as loops that narrow at once.
template <class Grid>
FP8_HD inline std::uint32_t code_bits(float v) {
  const std::uint32_t sign = (std::bit_cast<std::uint32_t>(v) >> 24) & 0x80u;
  const float a = clamped_magnitude<Grid>(v);
  const bool nan = std::bit_cast<std::uint32_t>(a) > 0x7F800000u;
  return (nan ? 0x7Fu : magnitude_code<Grid>(a)) | sign;
}

/// Returns code_bits() as a byte.
template <class Grid>
FP8_HD inline std::uint8_t encode(float v) {
  return static_cast<std::uint8_t>(code_bits<Grid>(v));
}

/// Bits of the BF16 value of a code, in 16-bit arithmetic: a subnormal of one, two or three significant bits is shifted
/// into the fraction of BF16. NaN gives a quiet NaN with its sign.
template <class Grid>
FP8_HD inline std::uint16_t decode_to_bf16(std::uint8_t code) {
  using U = std::uint16_t;  // each step is narrowed, so that the compiler uses 16-bit operations
  constexpr int kFraction = Grid::kFractionBits;
  constexpr U kOne = (Grid::kMinExponent - kFraction) << 7;  // the smallest subnormal
  constexpr U kInfinity = kFraction == 2 ? 0x7Cu : 0x7Fu;    // E4M3 has no infinity and one NaN
  const U m = code & 0x7Fu, sign = static_cast<U>((code & 0x80u) << 8);
  const U two = static_cast<U>((m << 6) + kOne), four = static_cast<U>((m << 5) + kOne + 0x80u);
  const U subnormal = m < 2 ? static_cast<U>(m * kOne) : m < 4 ? two : four;
  const U normal = static_cast<U>((m << (7 - kFraction)) + ((Grid::kMinExponent - 1) << 7));
  const U special = kFraction == 2 ? static_cast<U>((m << 5) | 0x7F80u) : U{0x7FC0u};
  const U finite = m < (1u << kFraction) ? subnormal : normal;
  return static_cast<U>((m >= kInfinity ? special : finite) | sign);
}

FP8_HD inline float from_e4m3(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80u) << 24, m = code & 0x7Fu;
  const std::uint32_t normal = (m << 20) + (120u << 23);
  // Subnormal: m counts units of 2^-9, the unit in the last place of 2^14.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(0x46800000u | m) - 0x1p14f);
  const std::uint32_t finite = m < 8 ? subnormal : normal;
  return std::bit_cast<float>((m == 0x7Fu ? 0x7FC00000u : finite) | sign);
}

FP8_HD inline float from_e5m2(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80u) << 24, m = code & 0x7Fu;
  const std::uint32_t normal = (m << 21) + (112u << 23);
  // Subnormal: m counts units of 2^-16, the unit in the last place of 2^7.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(0x43000000u | m) - 0x1p7f);
  const std::uint32_t finite = m < 4 ? subnormal : normal;
  return std::bit_cast<float>((m >= 0x7Cu ? (m << 21) | 0x7F800000u : finite) | sign);
}

FP8_HD inline float from_e8m0(std::uint8_t code) {
  const std::uint32_t bits = code == 0 ? 0x00400000u : static_cast<std::uint32_t>(code) << 23;
  return std::bit_cast<float>(code == 0xFFu ? 0x7FC00000u : bits);
}

FP8_HD inline std::uint8_t to_e8m0_round_up(float v) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(v);
  const std::uint32_t e = u >> 23, fraction = u & 0x007FFFFFu;
  // 2^-127 is half of the smallest normal float, so a subnormal up to 2^-127 has code 0.
  const std::uint32_t up = e + (fraction > (e == 0 ? 0x00400000u : 0u) ? 1u : 0u);
  const std::uint32_t code = up > 0xFEu ? 0xFEu : up;
  return static_cast<std::uint8_t>(u > 0x7F800000u ? 0xFFu : code);
}

}  // namespace fp8::dtype
