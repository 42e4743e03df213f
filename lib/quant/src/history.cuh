// Delayed scaling on a device: a block for each tensor.
#pragma once

#include "fp8/device/kernel.h"
#include "fp8/quant/cast_element.h"
#include "fp8/quant/history.h"

namespace fp8::quant {

inline constexpr int kHistoryThreads = 256;

// Computes what update_scales() does on the host. Blocks have kHistoryThreads threads.
template <class F>
__global__ void update_scales_kernel(F* amax, F* history, std::int64_t length, DelayedRule rule, F* scale,
                                     F* inverse_scale, const std::int32_t* skip) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x);
  F* const h = history + i * length;
  const F last = amax[i];
  const bool enters = last > 0.0f && last <= kLargestFloat && (skip == nullptr || *skip == 0);
  F largest = enters ? last : 0.0f;
  for (std::int64_t begin = 0; begin < length; begin += kHistoryThreads) {
    const std::int64_t at = begin + threadIdx.x;
    const F have = enters && at > 0 && at < length ? h[at] : 0.0f;
    largest = larger_amax(largest, have);
    __syncthreads();  // every amax of these is read before it is overwritten
    if (enters && at > 0 && at < length) h[at - 1] = have;
  }
  const unsigned most = device::block_combine<kHistoryThreads>(magnitude_bits(largest), device::LargestBits{});
  if (threadIdx.x != 0) return;
  if (enters) {
    h[length - 1] = last;
    h[0] = 0.0f;
    scale[i] = delayed_scale(rule.algorithm == AmaxAlgorithm::max ? from_magnitude(most) : last, rule.max, scale[i]);
  }
  amax[i] = 0.0f;
  inverse_scale[i] = 1.0f / scale[i];
}

template <class Launcher>
void launch_update_scales(const Launcher& launch, const ScaleSlots& slots, const DelayedRule& rule,
                          const std::int32_t* skip) {
  const std::int64_t n = slots.amax.size();
  if (n == 0) return;
  launch("delayed scales", dim3(static_cast<unsigned>(n)), dim3(kHistoryThreads), update_scales_kernel<float>,
         slots.amax.as<float>(), slots.history.as<float>(), slots.history.size() / n, rule, slots.scale.as<float>(),
         slots.inverse_scale.as<float>(), skip);
}

}  // namespace fp8::quant
