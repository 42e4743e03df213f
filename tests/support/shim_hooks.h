/// Calls from the functions of shim_memory.cc to the scheduler of cuda_shim.cc. Outside of kernels they do nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim_memory.h"

namespace fp8::shim {

/// An access of the running thread; `caller` is its instruction. Ends the launch if it is wrong.
void access(const void* at, std::size_t bytes, Access kind, const void* caller);

/// A misaligned access of the running thread: ends the launch.
void misaligned(const void* at, std::size_t alignment, const char* file, std::uint32_t line);

}  // namespace fp8::shim
