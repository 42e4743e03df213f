/// Casts and amaxes of one row of elements with unit stride, by the loops of cast_row.isa.cc for the instruction set in
/// use, on one thread. Codes, counts and amaxes are the same for every instruction set, except for the bits of NaN.
/// Private to this crate.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <type_traits>

#include "fp8/base/cpu.h"
#include "fp8/quant/cast_element.h"

namespace fp8::quant {

/// Saturated and underflowed elements of one row.
struct RowCounts {
  std::int64_t saturated = 0;    ///< number of saturated elements, as in CastCounts
  std::int64_t underflowed = 0;  ///< number of underflowed elements, as in CastCounts
  /// Adds another count.
  RowCounts& operator+=(const RowCounts& o) {
    saturated += o.saturated;
    underflowed += o.underflowed;
    return *this;
  }
};

/// Scales of several elements, and what their codes are multiplied by. Each product of a code and its multiplier is
/// exact in BF16, or not finite.
struct BlockFactors {
  const float* scale;  ///< one per block or per element
  const float* fold;   ///< multipliers of the codes, as many; 1 leaves a code unchanged
  bool fits;           ///< scales are positive, and no |x| * scale exceeds the largest value; x may be NaN
};

/// Casts of n elements of type T to one FP8 format: out[i] = x[i] * scale, rounded to the format.
template <class T>
struct GridLoops {
  RowCounts (*bf16)(const T* x, float scale, Bf16* out, std::int64_t n);                ///< values as BF16
  RowCounts (*bytes)(const T* x, float scale, std::uint8_t* out, std::int64_t n);       ///< codes
  RowCounts (*bf16_scales)(const T* x, const float* scale, Bf16* out, std::int64_t n);  ///< n <= 2^31 scales
  /// Values times multipliers as BF16, with factors for each `block` elements.
  RowCounts (*blocks)(const T* x, std::int64_t block, const BlockFactors& factors, Bf16* out, std::int64_t n);
  /// Values times multipliers as BF16, with factors for each element.
  RowCounts (*columns)(const T* x, const BlockFactors& factors, Bf16* out, std::int64_t n);
};

/// Loops over n elements of type T.
template <class T>
struct RowLoops {
  Magnitude<T> (*amax)(const T* x, std::int64_t n);                      ///< bits of the largest magnitude; 0 if n = 0
  void (*amax_into)(const T* x, Magnitude<T>* largest, std::int64_t n);  ///< largest[i] = max(largest[i], |x[i]|)
  /// Computes amax_into without NaN elements.
  void (*amax_into_but_nan)(const T* x, Magnitude<T>* largest, std::int64_t n);
  /// largest[b] = bits of the largest magnitude of block b of `block` elements, the last one perhaps shorter.
  void (*amax_of_blocks)(const T* x, std::int64_t block, Magnitude<T>* largest, std::int64_t n);
  /// Computes amax_of_blocks without NaN elements.
  void (*amax_of_blocks_but_nan)(const T* x, std::int64_t block, Magnitude<T>* largest, std::int64_t n);
  GridLoops<T> e4m3;  ///< casts to E4M3
  GridLoops<T> e5m2;  ///< casts to E5M2
};

/// Loops of one instruction set.
struct CastKernels {
  RowLoops<float> f32;  ///< loops over f32 elements
  RowLoops<Bf16> bf16;  ///< loops over BF16 elements
};
FP8_ISA_TABLES(CastKernels, kCastKernels, cast_kernels)

/// Loops over elements of type T.
template <class T>
const RowLoops<T>& row_loops(Isa isa = cpu_isa()) {
  if constexpr (std::is_same_v<T, float>)
    return cast_kernels(isa).f32;
  else
    return cast_kernels(isa).bf16;
}
/// Casts from elements of type T to the format of a grid.
template <class Grid, class T>
const GridLoops<T>& grid_loops(Isa isa = cpu_isa()) {
  return std::is_same_v<Grid, dtype::E4m3Grid> ? row_loops<T>(isa).e4m3 : row_loops<T>(isa).e5m2;
}

/// One scale for all elements of a row; a pointer is one scale per element.
struct OneScale {
  float scale;  ///< multiplies every element
};

/// Bits of the largest magnitude among x[0, n); 0 when n = 0.
template <class T>
Magnitude<T> amax_row(const T* x, std::int64_t n) {
  return row_loops<T>().amax(x, n);
}
/// The amax without NaNs, which are rare, so that a second, scalar pass over a row with one does not matter.
template <class T>
Magnitude<T> amax_without_nan(const T* x, std::int64_t n) {
  const Magnitude<T> infinity = magnitude_bits(dtype::from_float<T>(HUGE_VALF)), largest = amax_row(x, n);
  if (largest <= infinity) return largest;
  Magnitude<T> without = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const Magnitude<T> is = magnitude_bits(x[i]);
    if (is <= infinity && is > without) without = is;
  }
  return without;
}
/// to = max(to, from), while other threads may raise `to` too. Neither value is NaN or negative.
inline void raise(float& to, float from) {
  const std::atomic_ref<float> shared(to);
  float have = shared.load(std::memory_order_relaxed);
  while (have < from && !shared.compare_exchange_weak(have, from, std::memory_order_relaxed)) continue;
}
/// largest[i] = max(largest[i], |x[i]|), in bits.
template <class T>
void amax_into(const T* x, Magnitude<T>* largest, std::int64_t n) {
  row_loops<T>().amax_into(x, largest, n);
}

/// out[i] = x[i] * scale[i], rounded to the format, as BF16; at most 2^31 elements.
template <class Grid, class T>
RowCounts cast_row(const T* x, const float* scale, Bf16* out, std::int64_t n) {
  return grid_loops<Grid, T>().bf16_scales(x, scale, out, n);
}
/// out[i] = x[i] * scale, rounded to the format, as BF16.
template <class Grid, class T>
RowCounts cast_row(const T* x, OneScale scale, Bf16* out, std::int64_t n) {
  return grid_loops<Grid, T>().bf16(x, scale.scale, out, n);
}
/// out[i] = code of x[i] * scale.
template <class Grid, class T>
RowCounts cast_row(const T* x, OneScale scale, std::uint8_t* out, std::int64_t n) {
  return grid_loops<Grid, T>().bytes(x, scale.scale, out, n);
}
/// out[i] = code of x[i] * scale[i]. BF16 represents every code, so that the second rounding is exact.
template <class Grid, class T>
RowCounts cast_row(const T* x, const float* scale, std::uint8_t* out, std::int64_t n) {
  constexpr std::int64_t kChunk = 1024;
  std::array<Bf16, kChunk> values;
  RowCounts counts;
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    const std::int64_t some = std::min(kChunk, n - begin);
    counts += cast_row<Grid>(x + begin, scale + begin, values.data(), some);
    cast_row<Grid>(values.data(), OneScale{1.0f}, out + begin, some);
  }
  return counts;
}

}  // namespace fp8::quant
