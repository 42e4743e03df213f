/// Memory of a CUDA device, for Buffer alone. Builds without CUDA have a stand-in that refuses.
#pragma once

#include <cstddef>

namespace fp8::device {

/// `bytes` of zeroed device memory; throws Error naming `what` when there is none.
std::byte* take_cuda_memory(std::size_t bytes, const char* what);
/// Gives back what take_cuda_memory returned.
void release_cuda_memory(std::byte* data) noexcept;

}  // namespace fp8::device
