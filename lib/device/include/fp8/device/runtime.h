/// Version of the CUDA runtime in this build, and the memory of a GPU.
#pragma once

#include <cstddef>
#include <string>

#include "fp8/device/device.h"

namespace fp8::device {

/// "CUDA 13.1", with or without a GPU; empty in a build without CUDA.
std::string runtime_version();

/// "driver 580 or newer": the drivers that can run this version, by NVIDIA's table of minor version compatibility;
/// empty in a build without CUDA.
std::string runtime_driver();

/// Bytes of memory of the context's GPU, used or not; 0 on the host and in a context without a stream.
std::size_t gpu_memory(const Context& ctx);

}  // namespace fp8::device
