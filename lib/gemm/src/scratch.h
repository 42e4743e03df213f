/// Memory that an engine keeps between calls. It grows to the largest size that any call needed.
#pragma once

#include <algorithm>
#include <cstddef>

#include "fp8/device/device.h"

namespace fp8::gemm {

/// Scratch memory that grows and is never reduced.
class Scratch {
 public:
  /// On `device`; allocates nothing.
  explicit Scratch(device::DeviceType device) : device_type_(device) {}
  /// Records that a call needs `bytes`; allocates nothing.
  void need(std::size_t bytes) { need_ = std::max(need_, bytes); }
  /// Memory of bytes(); its content is lost when it grows.
  std::byte* memory() {
    if (buffer_.size() < need_) {
      buffer_ = device::Buffer();
      buffer_ = device::Buffer(need_, device_type_, "matrix multiply");
    }
    return buffer_.data();
  }
  /// The largest need so far.
  std::size_t bytes() const { return need_; }

 private:
  device::DeviceType device_type_;
  std::size_t need_ = 0;
  device::Buffer buffer_;
};

}  // namespace fp8::gemm
