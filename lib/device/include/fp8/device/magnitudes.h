/// Kernel that replaces floats by their magnitudes in place; see kernel.h.
#pragma once

#include <cstdint>

#include "fp8/device/kernel.h"

namespace fp8::device {

/// Clears the sign bits of n floats.
template <class Bits>
__global__ void clear_signs_kernel(Bits* values, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) values[i] &= 0x7FFFFFFFu;
}

/// Launches clear_signs_kernel.
template <class Launcher>
void clear_signs(const Launcher& launch, float* values, std::int64_t n) {
  constexpr unsigned kThreads = 256;
  launch("magnitudes", dim3(blocks_for(n, kThreads)), dim3(kThreads), clear_signs_kernel<unsigned>,
         reinterpret_cast<unsigned*>(values), n);
}

}  // namespace fp8::device
