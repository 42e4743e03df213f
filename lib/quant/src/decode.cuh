// Kernels that turn codes into values, for GEMMs that do not take FP8.
#pragma once

#include "fp8/device/groups.h"
#include "fp8/quant/cast.cuh"

namespace fp8::quant {

// The value of a code.
template <class Grid>
__device__ inline float value_of(std::uint8_t code) {
  return std::is_same_v<Grid, dtype::E4m3Grid> ? dtype::from_e4m3(code) : dtype::from_e5m2(code);
}

using Values = device::Group<float, kPiece>;

// Stores the first n values; `whole`: all, to a multiple of 16 bytes.
template <class T>
__device__ inline void store_some_values(T* to, const Values& values, std::int64_t n, bool whole) {
  if (whole) {
    device::store_floats<kPiece>(to, values);
    return;
  }
  FP8_UNROLL
  for (int k = 0; k < kPiece; ++k) {
    if (k < n) to[k] = dtype::from_float<T>(values.at[k]);
  }
}

// Values of n codes, padding included. `out` is a multiple of 16 bytes.
template <class Grid, class T>
__global__ void upcast_kernel(const std::uint8_t* codes, std::int64_t n, T* out) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPiece;
  if (i >= n) return;
  const bool whole = i + kPiece <= n;
  const Eight e = whole && rows_aligned(codes, 0, sizeof(Eight)) ? *reinterpret_cast<const Eight*>(codes + i)
                                                                 : load_some_codes(codes + i, n - i);
  Values values;
  FP8_UNROLL
  for (int k = 0; k < kPiece; ++k) values.at[k] = value_of<Grid>(byte_of(e, k));
  store_some_values(out + i, values, n - i, whole);
}

// Values of codes times the inverse scales of their blocks, for `lines` lines of `stride` bytes, of which the first
// `length` are codes; 0 in the padding. Lines are multiples of 16 bytes.
template <class Grid, class T>
__global__ void fold_kernel(CodeLines codes, std::int64_t lines, std::int64_t length, const float* inverse,
                            ScaleGrid grid, T* out) {
  const PatchPlace place;
  const std::int64_t c = place.col();
  if (c >= codes.stride) return;
  FP8_UNROLL_BY_4
  for (int i = 0; i < kPiece; ++i) {
    const std::int64_t line = place.row() + i;
    if (line >= lines) continue;
    const Eight e = *reinterpret_cast<const Eight*>(codes.codes + line * codes.stride + c);
    const float by = c < length ? inverse[grid.at(line, c)] : 0.0f;
    Values values;
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k) values.at[k] = value_of<Grid>(byte_of(e, k)) * (c + k < length ? by : 0.0f);
    device::store_floats<kPiece>(out + line * codes.stride + c, values);
  }
}

}  // namespace fp8::quant
