/// Helpers for tests on a GPU: a device context and copies of host views.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/device/device.h"
#include "fp8/tensor/tensor.h"

namespace fp8::test {

/// Skips the test, with the reason, if no GPU can be used.
#define FP8_NEED_GPU() \
  if (device::cuda_device_count() == 0) GTEST_SKIP() << device::why_no_cuda()

/// The first GPU, a context for it, and copies of host views in its memory.
class Gpu {
 public:
  explicit Gpu(std::size_t scratch_bytes = std::size_t{256} << 20)
      : device_(device::DeviceType::cuda),
        arena_(scratch_bytes, device::DeviceType::cuda),
        context_(device_.context(arena_)) {}

  /// A context with the GPU's stream and the scratch arena.
  const device::Context& context() const { return context_; }
  /// The scratch arena.
  device::Arena& arena() { return arena_; }
  /// Copies a host view to the GPU, with the same strides and the same address modulo 64.
  tensor::View put(const tensor::View& host) {
    const std::size_t off = reinterpret_cast<std::uintptr_t>(host.data) % 64, bytes = span_bytes(host);
    taken_.emplace_back(off + bytes + 1, device::DeviceType::cuda, "a test's tensor");
    device::copy_bytes(context_, taken_.back().data() + off, device::DeviceType::cuda, host.data,
                       device::DeviceType::host, bytes);
    tensor::View v = host;
    v.data = taken_.back().data() + off;
    v.device = device::DeviceType::cuda;
    return v;
  }
  /// Copies a view on the GPU to a contiguous host view, after all launched kernels.
  void get(const tensor::View& from, const tensor::View& host) {
    device::copy_bytes(context_, host.data, device::DeviceType::host, from.data, device::DeviceType::cuda,
                       host.bytes());
  }
  /// Frees all copies.
  void clear() {
    device::synchronize(context_);
    taken_.clear();
  }

 private:
  static std::size_t span_bytes(const tensor::View& v) {
    std::int64_t last = 0;
    for (int d = 0; d < v.rank; ++d) {
      const auto at = static_cast<std::size_t>(d);
      if (v.shape[at] == 0) return 0;
      last += (v.shape[at] - 1) * v.stride[at];
    }
    return static_cast<std::size_t>(last + 1) * dtype::size_of(v.dtype);
  }
  device::Device device_;
  device::Arena arena_;
  device::Context context_;
  std::vector<device::Buffer> taken_;
};

}  // namespace fp8::test
