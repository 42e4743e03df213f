/// Casts and amaxes of one row of elements with unit stride, by the loops of cast_row.isa.cc for the instruction set in
/// use. Codes, counts and amaxes are the same for every set; which NaN an FP8 or BF16 NaN is may differ. Private to
/// this crate. No threads, no views.
#pragma once

#include <type_traits>

#include "fp8/base/cpu.h"
#include "kernels.h"

namespace fp8::quant {

/// Elements of one row that were clamped, and non-zero ones that became zero.
struct RowCounts {
  std::int64_t saturated = 0;    ///< as CastCounts
  std::int64_t underflowed = 0;  ///< as CastCounts
  /// Adds another count.
  RowCounts& operator+=(const RowCounts& o) {
    saturated += o.saturated;
    underflowed += o.underflowed;
    return *this;
  }
};

/// Loops over n elements of type T to the grid of one format; out[i] = x[i] * scale on the grid.
template <class T>
struct GridLoops {
  RowCounts (*wide)(const T* x, float scale, Bf16* out, std::int64_t n);           ///< the values as BF16
  RowCounts (*bytes)(const T* x, float scale, std::uint8_t* out, std::int64_t n);  ///< their codes
  RowCounts (*scales)(const T* x, const float* scale, Bf16* out, std::int64_t n);  ///< n scales; n at most 2^31
};

/// Loops over n elements of type T.
template <class T>
struct RowLoops {
  Magnitude<T> (*amax)(const T* x, std::int64_t n);                      ///< bits of the largest magnitude, 0 for none
  void (*amax_into)(const T* x, Magnitude<T>* largest, std::int64_t n);  ///< largest[i] = max(largest[i], |x[i]|)
  GridLoops<T> e4m3;                                                     ///< to E4M3
  GridLoops<T> e5m2;                                                     ///< to E5M2
};

/// All of one instruction set.
struct CastKernels {
  RowLoops<float> f32;  ///< from f32
  RowLoops<Bf16> bf16;  ///< from BF16
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
/// Loops from elements of type T to a grid.
template <class Grid, class T>
const GridLoops<T>& grid_loops(Isa isa = cpu_isa()) {
  return std::is_same_v<Grid, dtype::E4m3Grid> ? row_loops<T>(isa).e4m3 : row_loops<T>(isa).e5m2;
}

/// One scale for every element of a row, beside a pointer to a scale for each.
struct OneScale {
  float scale;  ///< multiplies every element
};

/// Bits of the largest magnitude among x[0, n); 0 when n = 0.
template <class T>
Magnitude<T> amax_row(const T* x, std::int64_t n) {
  return row_loops<T>().amax(x, n);
}
/// largest[i] = max(largest[i], |x[i]|), in bits.
template <class T>
void amax_into(const T* x, Magnitude<T>* largest, std::int64_t n) {
  row_loops<T>().amax_into(x, largest, n);
}

/// out[i] = x[i] * scale[i] on the grid, at most 2^31 elements.
template <class Grid, class T>
RowCounts cast_row(const T* x, const float* scale, Bf16* out, std::int64_t n) {
  return grid_loops<Grid, T>().scales(x, scale, out, n);
}
/// out[i] = x[i] * scale on the grid.
template <class Grid, class T>
RowCounts cast_row(const T* x, OneScale scale, Bf16* out, std::int64_t n) {
  return grid_loops<Grid, T>().wide(x, scale.scale, out, n);
}
/// The codes of the same.
template <class Grid, class T>
RowCounts cast_row(const T* x, OneScale scale, std::uint8_t* out, std::int64_t n) {
  return grid_loops<Grid, T>().bytes(x, scale.scale, out, n);
}

}  // namespace fp8::quant
