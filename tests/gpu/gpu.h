/// What tests on a GPU share: the GPU, and copies of host views on it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/device/device.h"
#include "fp8/tensor/tensor.h"

namespace fp8::test {

/// Ends a test, with the reason, where no GPU can be used.
#define FP8_NEED_GPU() \
  if (device::cuda_device_count() == 0) GTEST_SKIP() << device::why_no_cuda()

/// The first GPU, a context on it, and memory that mirrors views of the host.
class Gpu {
 public:
  explicit Gpu(std::size_t scratch_bytes = std::size_t{256} << 20)
      : device_(device::DeviceType::cuda),
        arena_(scratch_bytes, device::DeviceType::cuda),
        context_(device_.context(arena_)) {}

  /// On its stream, with scratch.
  const device::Context& context() const { return context_; }
  /// The scratch.
  device::Arena& arena() { return arena_; }
  /// A copy of a view, from its first element to its last, with the same strides and as far from a multiple of 64.
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
  /// Fills a contiguous view of the host from the span of a view on the GPU; waits for what was launched.
  void get(const tensor::View& from, const tensor::View& host) {
    device::copy_bytes(context_, host.data, device::DeviceType::host, from.data, device::DeviceType::cuda,
                       host.bytes());
  }
  /// Gives all copies back.
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
