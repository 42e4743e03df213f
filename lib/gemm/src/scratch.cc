#include "scratch.h"

namespace fp8::gemm {

std::byte* Scratch::memory() {
  if (buffer_.size() < need_) {
    buffer_ = device::Buffer();
    buffer_ = device::Buffer(need_, device_type_, "matrix multiply");
  }
  return buffer_.data();
}

}  // namespace fp8::gemm
