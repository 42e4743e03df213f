// Casts whose scales are folded into another operand, on a device.
#pragma once

#include "fp8/quant/fold.h"
#include "quantize.cuh"

namespace fp8::quant {

template <class T>
__global__ void scale_columns_kernel(const T* x, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                                     const float* factors, T* out) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * cols) return;
  const std::int64_t c = i % cols;
  out[i] = dtype::from_float<T>(dtype::to_float(x[i / cols * stride + c]) * factors[c]);
}

template <class F>
__global__ void reciprocal_kernel(const F* from, std::int64_t n, F* to) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) to[i] = 1.0f / from[i];
}

// Amaxes become scales.
template <class F>
__global__ void row_scale_kernel(F* amax, std::int64_t n, F max, ScaleRule rule, bool power_of_2) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) amax[i] = scale_by_rule(rule, amax[i], max, power_of_2);
}

template <class Launcher>
void launch_scale_columns(const Launcher& launch, const View& x, const View& factors, const View& out) {
  if (x.size() == 0) return;
  dtype::with_float_type(x.dtype, "scale_columns", [&]<class T>() {
    launch("fold scales", dim3(blocks_for(x.size(), kCastThreads)), dim3(kCastThreads), scale_columns_kernel<T>,
           x.as<T>(), x.shape[0], x.shape[1], x.stride[0], factors.as<float>(), out.as<T>());
  });
}

template <class Launcher>
void launch_reciprocals(const Launcher& launch, const View& scales, const View& out) {
  launch("reciprocals", dim3(blocks_for(out.size(), kCastThreads)), dim3(kCastThreads), reciprocal_kernel<float>,
         scales.as<float>(), out.size(), out.as<float>());
}

// Amaxes of rows, their scales, then codes in contiguous rows.
template <class Launcher>
void launch_rows_to_bytes(const Launcher& launch, const View& x, dtype::DType format, const CastOptions& options,
                          const View& codes, const View& scales) {
  if (x.size() == 0) return;
  launch_amax(launch, x, {{}, scales, {}}, false);
  launch("scale", dim3(blocks_for(scales.size(), kCastThreads)), dim3(kCastThreads), row_scale_kernel<float>,
         scales.as<float>(), scales.size(), dtype::max_of(format), options.rule, options.power_of_2);
  launch_cast(launch, x,
              {.codes = codes.as<std::uint8_t>(),
               .stride = x.shape[1],
               .format = format,
               .scale = scales.as<float>(),
               .grid = {.line_stride = 1}},
              {}, false, {}, options.counts);
}

}  // namespace fp8::quant
