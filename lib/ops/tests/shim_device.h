/// The kernels of this crate on the host, thread by thread, as a device for the cases. Copies of views end at their
/// last element, so that AddressSanitizer detects accesses past the end.
#pragma once

#include <cstring>
#include <new>
#include <vector>

#include "device_cases.h"

namespace fp8::ops {

/// Memory of a shim device, for all families of operations.
class ShimMemory {
 public:
  ShimMemory() = default;
  ShimMemory(const ShimMemory&) = delete;
  ShimMemory& operator=(const ShimMemory&) = delete;
  ~ShimMemory() { clear(); }

  /// A copy with the same strides, as far from a multiple of 64 bytes as the original.
  View put(const View& host) {
    const std::size_t off = reinterpret_cast<std::uintptr_t>(host.data) % kAlign,
                      bytes = static_cast<std::size_t>(cases::span_of(host)) * dtype::size_of(host.dtype);
    auto* memory = static_cast<std::byte*>(::operator new (off + bytes, std::align_val_t{kAlign}));
    taken_.push_back(memory);
    if (bytes > 0) std::memcpy(memory + off, host.data, bytes);
    View v = host;
    v.data = memory + off;
    return v;
  }
  /// The span of a copy back to the host.
  void get(const View& from, const View& host) {
    if (host.size() > 0) std::memcpy(host.data, from.data, host.bytes());
  }
  /// Uninitialized memory.
  View scratch(DType type, tensor::Shape shape) {
    const Tensor t(type, shape);
    write(t.view(), random_values(t.view().size(), 99));
    return put(t.view());
  }
  /// Releases all copies.
  void clear() {
    for (std::byte* memory : taken_) ::operator delete (memory, std::align_val_t{kAlign});
    taken_.clear();
  }
  const Context context{.device = device::DeviceType::cuda};  ///< for the functions of cuda.h

 private:
  static constexpr std::size_t kAlign = 64;
  std::vector<std::byte*> taken_;
};

}  // namespace fp8::ops
