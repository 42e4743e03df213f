// Stand-in for builds without CUDA: no buffer can lie on a device.
#include "cuda_memory.h"
#include "fp8/base/error.h"

namespace fp8::device {

std::byte* take_cuda_memory(std::size_t, const char* what) {
  throw Error(std::string(what) + ": this build has no CUDA: use the host, or build with CUDA=1");
}

void release_cuda_memory(std::byte*) noexcept {}

}  // namespace fp8::device
