/// Memory that an engine keeps between calls. Not an arena: it grows to the largest need that was ever noted.
#pragma once

#include <cstddef>

#include "fp8/device/device.h"

namespace fp8::gemm {

/// Scratch memory that grows to the largest need and stays.
class Scratch {
 public:
  /// Of `device`; nothing is taken yet.
  explicit Scratch(device::DeviceType device) : device_type_(device) {}
  /// Notes a need of `bytes`, takes nothing.
  void need(std::size_t bytes) { need_ = bytes > need_ ? bytes : need_; }
  /// Memory of the largest need so far; its content is lost when it grows.
  std::byte* memory();
  /// Largest need so far, in bytes.
  std::size_t bytes() const { return need_; }

 private:
  device::DeviceType device_type_;
  std::size_t need_ = 0;
  device::Buffer buffer_;
};

}  // namespace fp8::gemm
