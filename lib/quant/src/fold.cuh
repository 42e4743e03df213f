// Casts whose scales are folded into another operand, on a device.
#pragma once

#include "fp8/quant/fold.h"
#include "quantize.cuh"

namespace fp8::quant {

// Calls body(row, column, piece, factors of its columns, number of columns) for the pieces of a thread that are in x.
template <class T, class Body>
__device__ inline void each_scaled_piece(const Source<T>& x, const PatchPlace& place, const float* factors,
                                         const Body& body) {
  const std::int64_t c = place.col(), n = x.cols - c;
  if (n <= 0) return;
  const bool packed = n >= kPiece && device::packs(x.data, x.stride);
  float by[kPiece];
  FP8_UNROLL
  for (int k = 0; k < kPiece; ++k) by[k] = k < n ? factors[c + k] : 0.0f;
  FP8_UNROLL_BY_4
  for (int i = 0; i < kPiece; ++i) {
    const std::int64_t r = place.row() + i;
    if (r >= x.rows) continue;
    Piece<T> piece;
    piece.load(x.data + r * x.stride, c, x.cols, packed);
    body(r, c, piece, by, n);
  }
}

// The columns of x times their factors; rows of `out` are contiguous.
template <class T>
__global__ void scale_columns_kernel(Source<T> x, const float* factors, T* out) {
  const bool packed = device::packs(x.data, x.stride) && device::packs(out, x.cols);
  each_scaled_piece(x, PatchPlace(), factors,
                    [&](std::int64_t r, std::int64_t c, const Piece<T>& piece, const float* by, std::int64_t n) {
                      Values values;
                      FP8_UNROLL
                      for (int k = 0; k < kPiece; ++k) values.at[k] = piece.at(k) * by[k];
                      store_some_values(out + r * x.cols + c, values, n, packed && n >= kPiece);
                    });
}

// Codes of a tile of x in contiguous rows, each column with a scale of its own.
template <class Grid, bool kCounted, class T>
__device__ inline void cast_columns_tile(const Source<T>& x, const PatchPlace& place, const float* scales,
                                         const CodeLines& to, unsigned long long* counts) {
  Tally<kCounted> tally;
  each_scaled_piece(x, place, scales,
                    [&](std::int64_t r, std::int64_t c, const Piece<T>& piece, const float* by, std::int64_t n) {
                      const auto scale_of = [&](int k) { return by[k]; };
                      to.store_some(r, c, first_codes(encode_piece<Grid>(piece, scale_of, tally), n));
                    });
  add_counts(tally, place, x.rows * x.cols, counts);
}

template <class T, class Grid, bool kCounted>
__global__ void cast_columns_kernel(Source<T> x, const float* scales, CodeLines to, unsigned long long* counts) {
  cast_columns_tile<Grid, kCounted>(x, PatchPlace(), scales, to, counts);
}

template <class F>
__global__ void reciprocal_kernel(const F* from, std::int64_t n, F* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) to[i] = 1.0f / from[i];
}

template <class Launcher>
void launch_scale_columns(const Launcher& launch, const View& x, const View& factors, const View& out) {
  if (x.size() == 0) return;
  dtype::with_float_type(x.dtype, "scale_columns", [&]<class T>() {
    launch("fold scales", dim3(blocks_for(x.shape[1], kTile), blocks_for(x.shape[0], kTile)), dim3(kCastThreads),
           scale_columns_kernel<T>, Source<T>{x.as<T>(), x.shape[0], x.shape[1], x.stride[0]}, factors.as<float>(),
           out.as<T>());
  });
}

template <class Launcher>
void launch_cast_columns(const Launcher& launch, const View& x, dtype::DType format, const View& scales,
                         const View& codes, CastCounts* counts) {
  if (x.size() == 0) return;
  dtype::with_float_type(x.dtype, "cast_columns_to_bytes", [&]<class T>() {
    dtype::with_fp8_grid(format, [&]<class Grid>() {
      launch("cast", dim3(blocks_for(x.shape[1], kTile), blocks_for(x.shape[0], kTile)), dim3(kCastThreads),
             counts != nullptr ? cast_columns_kernel<T, Grid, true> : cast_columns_kernel<T, Grid, false>,
             Source<T>{x.as<T>(), x.shape[0], x.shape[1], x.stride[0]}, scales.as<float>(),
             CodeLines{codes.as<std::uint8_t>(), codes.shape[1]}, reinterpret_cast<unsigned long long*>(counts));
    });
  });
}

template <class Launcher>
void launch_reciprocals(const Launcher& launch, const View& scales, const View& out) {
  launch("reciprocals", dim3(blocks_for(out.size(), kCastThreads)), dim3(kCastThreads), reciprocal_kernel<float>,
         scales.as<float>(), out.size(), out.as<float>());
}

// Amaxes of rows, their scales, then codes in contiguous rows.
template <class Launcher>
void rows_to_bytes_cuda(const Context& ctx, const View& x, dtype::DType format, const CastOptions& options,
                        const View& codes, const View& scales) {
  const Launcher launch(ctx);
  launch_amax(launch, x, {{}, scales, {}}, false);
  if (covers_ranks({format, Granularity::row}, ContractionAxis::last, options.split))
    reduce(ctx, options.split, scales);
  launch_scales(launch, scales, {format, options.rule, options.power_of_2}, scales, {});
  launch_cast(launch, x,
              {.codes = codes.as<std::uint8_t>(),
               .stride = x.shape[1],
               .format = format,
               .scale = scales.as<float>(),
               .grid = {.line_stride = 1}},
              {}, false, {}, options.counts);
}

}  // namespace fp8::quant
