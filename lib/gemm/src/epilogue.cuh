/// Kernels for GEMMs on a device: the epilogue of epilogue.h, for options that cuBLASLt lacks, and the broadcast of one
/// inverse scale to a vector, for scale modes that need one.
#pragma once

#include <cstdint>

#include "epilogue.h"
#include "fp8/device/kernel.h"
#include "fp8/dtype/element.h"

namespace fp8::gemm {

inline constexpr int kFinishThreads = 256;  ///< threads of a block

/// An Epilogue as arguments of a kernel. A step of 0 reads the same scale for all indices.
struct FinishArguments {
  const float *scale_a, *scale_b;  ///< scales, or null if absent
  std::int64_t step_a, step_b;     ///< 1 for one scale per row or column
  const float* bias_f32;           ///< bias in f32, or null
  const dtype::Bf16* bias_bf16;    ///< bias in bf16, or null
  bool accumulate;                 ///< add to C
};

/// One row of C per block: each operation rounded to f32 in the order of the host's finish(), then to C's format.
template <class C>
__global__ void finish_kernel(const float* sums, std::int64_t columns, FinishArguments f, C* c, std::int64_t stride) {
  const std::int64_t row = blockIdx.x;
  const float scale_a = f.scale_a == nullptr ? 1.0f : f.scale_a[row * f.step_a];
  for (std::int64_t j = threadIdx.x; j < columns; j += kFinishThreads) {
    float v = sums == nullptr ? 0.0f : sums[row * columns + j];
    v *= scale_a;
    if (f.scale_b != nullptr) v *= f.scale_b[j * f.step_b];
    if (f.bias_f32 != nullptr) v += f.bias_f32[j];
    if (f.bias_bf16 != nullptr) v += dtype::to_float(f.bias_bf16[j]);
    C& to = c[row * stride + j];
    if (f.accumulate) v += dtype::to_float(to);
    to = dtype::from_float<C>(v);
  }
}

/// out [n] = *one, or 1 if `one` is null.
template <class T>
__global__ void broadcast_kernel(const T* one, std::int64_t n, T* out) {
  const T value = one == nullptr ? T{1} : *one;
  const std::int64_t all = static_cast<std::int64_t>(gridDim.x) * kFinishThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kFinishThreads + threadIdx.x; i < n; i += all)
    out[i] = value;
}

/// Computes what finish() of epilogue.h does. `sums` [rows, columns] f32, contiguous, stay unchanged; null means zeros.
template <class Launcher>
void finish_cuda(const Launcher& launch, const float* sums, const Epilogue& e, const View& c) {
  const View& bias = e.bias;
  const FinishArguments f{
      .scale_a = e.scale_a,
      .scale_b = e.scale_b,
      .step_a = e.scale_a_rows ? 1 : 0,
      .step_b = e.scale_b_columns ? 1 : 0,
      .bias_f32 = !bias.empty() && bias.dtype == DType::f32 ? static_cast<const float*>(bias.data) : nullptr,
      .bias_bf16 = !bias.empty() && bias.dtype == DType::bf16 ? static_cast<const dtype::Bf16*>(bias.data) : nullptr,
      .accumulate = e.accumulate};
  const std::int64_t rows = c.size() == 0 ? 0 : c.shape[0], columns = c.shape[1], stride = c.stride[0];
  const dim3 grid(static_cast<unsigned>(rows)), block(kFinishThreads);
  if (c.dtype == DType::bf16) {
    launch("gemm finish", grid, block, finish_kernel<dtype::Bf16>, sums, columns, f, static_cast<dtype::Bf16*>(c.data),
           stride);
  } else {
    launch("gemm finish", grid, block, finish_kernel<float>, sums, columns, f, static_cast<float*>(c.data), stride);
  }
}

/// Broadcasts one inverse scale (1 if null) to n elements.
template <class Launcher>
void broadcast_cuda(const Launcher& launch, const float* one, std::int64_t n, float* out) {
  const std::int64_t blocks = divide_up(n, kFinishThreads);
  const std::int64_t most = 8LL * launch.multiprocessors();
  launch("gemm broadcast", dim3(static_cast<unsigned>(blocks < most ? blocks : most)), dim3(kFinishThreads),
         broadcast_kernel<float>, one, n, out);
}

}  // namespace fp8::gemm
