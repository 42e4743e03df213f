// Amaxes and the scales that follow from them on a device. Magnitudes are compared as integers: atomic maxima of them
// have the same bits in any order.
#pragma once

#include "fp8/dtype/dispatch.h"
#include "fp8/quant/cast_element.h"
#include "fp8/quant/quantize.h"
#include "fp8/quant/scale.h"
#include "fp8/quant/tile.cuh"

namespace fp8::quant {

using device::blocks_for;
using device::LargestBits;

inline constexpr int kAmaxWarps = kCastThreads / device::kWarp;

// Bits of |v|; with SkipNan, 0 for NaN.
template <bool kSkipNan>
__device__ inline unsigned amax_bits(float v) {
  return kSkipNan ? magnitude_bits(fmaxf(fabsf(v), 0.0f)) : magnitude_bits(v);  // fmaxf() of a NaN and 0 is 0
}

// Maximum magnitude bits of all of x, of each row and of each column; null: not wanted. Results must be zeroed before.
struct AmaxBits {
  unsigned *all, *of_row, *of_column;
};

// Maxima of the rows from `first` on, of which a block has kAmaxRows.
template <class T, bool kSkipNan>
__device__ inline void amax_tile(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                                 std::int64_t first, const AmaxBits& to) {
  constexpr int kAtOnce = 4;  // rows of a thread whose loads are in flight together
  __shared__ unsigned column[kAmaxWarps][kAmaxColumns];
  const int warp = static_cast<int>(threadIdx.x) / device::kWarp, lane = static_cast<int>(threadIdx.x) % device::kWarp;
  const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.x) * kAmaxColumns, c = first_col + lane * kPiece;
  const int own_rows = static_cast<int>(rows - first < kAmaxRows ? rows - first : kAmaxRows);
  const bool whole = device::packs(x, stride) && first_col + kAmaxColumns <= cols;
  unsigned of_lane[kPiece] = {};
  for (int i = warp; i < own_rows; i += kAtOnce * kAmaxWarps) {
    Piece<T> pieces[kAtOnce];
    const auto row = [&](int n) {  // the last row again past the end, which changes no maximum
      const int own = i + n * kAmaxWarps;
      return first + (own < own_rows ? own : own_rows - 1);
    };
    if (whole) {
      FP8_UNROLL
      for (int n = 0; n < kAtOnce; ++n) pieces[n].load(x + row(n) * stride + c);
    } else {
      FP8_UNROLL
      for (int n = 0; n < kAtOnce; ++n) pieces[n].load_some(x + row(n) * stride + c, cols - c);
    }
    FP8_UNROLL
    for (int n = 0; n < kAtOnce; ++n) {
      unsigned largest = 0;
      FP8_UNROLL
      for (int k = 0; k < kPiece; ++k) {
        const unsigned bits = amax_bits<kSkipNan>(pieces[n].at(k));
        of_lane[k] = LargestBits{}(of_lane[k], bits);
        largest = LargestBits{}(largest, bits);
      }
      if (to.of_row == nullptr) continue;
      largest = device::warp_combine(largest, LargestBits{});
      if (lane == 0) atomicMax(to.of_row + row(n), largest);
    }
  }
  if (to.all != nullptr) {
    unsigned largest = 0;
    FP8_UNROLL
    for (int k = 0; k < kPiece; ++k) largest = LargestBits{}(largest, of_lane[k]);
    largest = device::block_combine<kCastThreads>(largest, LargestBits{});
    if (threadIdx.x == 0) atomicMax(to.all, largest);
  }
  if (to.of_column == nullptr) return;
  FP8_UNROLL
  for (int k = 0; k < kPiece; ++k) column[warp][lane * kPiece + k] = of_lane[k];
  __syncthreads();
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * kAmaxColumns + threadIdx.x;
  if (mine >= cols) return;
  unsigned largest = 0;
  FP8_UNROLL
  for (int w = 0; w < kAmaxWarps; ++w) largest = LargestBits{}(largest, column[w][threadIdx.x]);
  atomicMax(to.of_column + mine, largest);
}

template <class T, bool kSkipNan>
__global__ void amax_kernel(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride, AmaxBits to) {
  amax_tile<T, kSkipNan>(x, rows, cols, stride, static_cast<std::int64_t>(blockIdx.y) * kAmaxRows, to);
}
static_assert(kAmaxColumns == device::kWarp * kPiece, "a lane has one piece");

template <class T>
__global__ void fill_kernel(T* to, std::int64_t n, T value) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) to[i] = value;
}

// amax may be scale; inverse_scale may be null.
template <class F>
__global__ void scale_kernel(const F* amax, std::int64_t n, F max, ScaleRule rule, bool power_of_2, F* scale,
                             F* inverse_scale) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const F s = scale_by_rule(rule, amax[i], max, power_of_2);
  scale[i] = s;
  if (inverse_scale != nullptr) inverse_scale[i] = 1.0f / s;
}

// Amaxes as f32 views; empty: not wanted.
struct Amaxes {
  View all, of_row, of_column;
};

// With `keep`, a result becomes the larger of its value and the amax.
template <class Launcher>
void launch_amax(const Launcher& launch, const View& x, const Amaxes& out, bool skip_nan, bool keep = false) {
  if (out.all.empty() && out.of_row.empty() && out.of_column.empty()) return;
  const auto begin = [&](const View& v) {
    if (v.empty()) return static_cast<unsigned*>(nullptr);
    auto* const bits = static_cast<unsigned*>(v.data);
    if (!keep)
      launch("amax: begin", dim3(blocks_for(v.size(), kCastThreads)), dim3(kCastThreads), fill_kernel<unsigned>, bits,
             v.size(), 0u);
    return bits;
  };
  unsigned *const all = begin(out.all), *const of_row = begin(out.of_row), *const of_column = begin(out.of_column);
  dtype::with_float_type(x.dtype, "amax", [&]<class T>() {
    launch("amax", dim3(blocks_for(x.shape[1], kAmaxColumns), blocks_for(x.shape[0], kAmaxRows)), dim3(kCastThreads),
           skip_nan ? amax_kernel<T, true> : amax_kernel<T, false>, x.as<T>(), x.shape[0], x.shape[1], x.stride[0],
           AmaxBits{all, of_row, of_column});
  });
}

template <class Launcher>
void launch_scales(const Launcher& launch, const View& amax, const ScaleOptions& options, const View& scales,
                   const View& inverse_scales) {
  launch("scale", dim3(blocks_for(scales.size(), kCastThreads)), dim3(kCastThreads), scale_kernel<float>,
         amax.as<float>(), scales.size(), dtype::max_of(options.format), options.rule, options.power_of_2,
         scales.as<float>(), inverse_scales.as<float>());
}

}  // namespace fp8::quant
