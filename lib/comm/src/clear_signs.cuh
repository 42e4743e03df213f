// Magnitudes of floats in place, before their maximum over the ranks is taken as integers.
#pragma once

#include <span>

#include "fp8/device/cuda.h"
#include "fp8/device/kernel.h"

namespace fp8::comm::cuda {

template <class Bits>
__global__ void clear_signs_kernel(Bits* values, std::size_t n) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) values[i] &= 0x7FFFFFFFu;
}

inline void clear_signs(cudaStream_t stream, std::span<float> values) {
  constexpr unsigned kThreads = 256;
  const unsigned blocks = device::blocks_for(static_cast<std::int64_t>(values.size()), kThreads);
  clear_signs_kernel<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<unsigned*>(values.data()), values.size());
  FP8_CUDA(cudaGetLastError());
}

}  // namespace fp8::comm::cuda
