/// Inner loops of amax and cast over one row of elements with unit stride, as templates over element type, format and
/// code type, so that the compiler vectorizes each. Private to this crate. No threads, no views.
#pragma once

#include <algorithm>
#include <array>
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

/// Bits of the largest magnitude among x[0, n); 0 when n = 0.
template <class T>
Magnitude<T> amax_row(const T* x, std::int64_t n) {
  Magnitude<T> largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, magnitude_bits(x[i]));
  return largest;
}

/// largest[i] = max(largest[i], |x[i]|), in bits.
template <class T>
void amax_into(const T* x, Magnitude<T>* largest, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const Magnitude<T> have = largest[i],
                       is = magnitude_bits(x[i]);  // values: a reference, as of std::max, is not vectorized
    largest[i] = have < is ? is : have;
  }
}

/// One scale for every element; indexes like an array of scales.
struct OneScale {
  float scale;  ///< multiplies every element
  /// The scale of element i: the same for all.
  float operator[](std::int64_t) const { return scale; }
};

/// v on the format's grid as the BF16 it is.
template <class Grid>
inline void store_code(float v, Bf16& out) {
  out.bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(dtype::round_to_grid<Grid>(v)) >> 16);
}

/// v's code.
template <class Grid>
inline void store_code(float v, std::uint32_t& out) {
  out = dtype::code_bits<Grid>(v);
}

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

/// Elements of one row that were clamped, and non-zero ones that became zero.
struct RowCounts {
  std::int64_t saturated = 0;    ///< as CastCounts
  std::int64_t underflowed = 0;  ///< as CastCounts
};

/// out[i] = x[i] * scale[i] on the grid, at most 2^31 elements.
template <class Grid, class T, class Scale, class Out>
RowCounts cast_row(const T* x, Scale scale, Out* out, std::int64_t n) {
  std::int32_t saturated = 0, underflowed = 0;
#pragma omp simd reduction(+ : saturated, underflowed)
  for (std::int64_t i = 0; i < n; ++i) {
    const float from = dtype::to_float(x[i]), v = from * scale[i];
    store_code<Grid>(v, out[i]);
    saturated += clamped<Grid>(v) ? 1 : 0;
    underflowed += vanished<Grid>(v, from) ? 1 : 0;
  }
  return {saturated, underflowed};
}

/// The same into bytes: codes of a piece that stays in the nearest cache, then narrowed.
template <class Grid, class T>
RowCounts cast_row(const T* x, OneScale scale, std::uint8_t* out, std::int64_t n) {
  constexpr std::int64_t kPiece = 512;
  std::array<std::uint32_t, kPiece> codes;
  RowCounts counts;
  for (std::int64_t begin = 0; begin < n; begin += kPiece) {
    const std::int64_t length = std::min(kPiece, n - begin);
    const RowCounts more = cast_row<Grid>(x + begin, scale, codes.data(), length);
    counts.saturated += more.saturated;
    counts.underflowed += more.underflowed;
#pragma omp simd
    for (std::int64_t i = 0; i < length; ++i)
      out[begin + i] = static_cast<std::uint8_t>(codes[static_cast<std::size_t>(i)]);
  }
  return counts;
}

}  // namespace fp8::quant
