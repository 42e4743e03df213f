/// Version of the CUDA runtime in this build, and the memory of a GPU.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fp8/device/device.h"

namespace fp8::device {

/// "CUDA 13.1", with or without a GPU; empty in a build without CUDA.
std::string runtime_version();

/// "driver 580 or newer": the drivers that can run this version, by NVIDIA's table of minor version compatibility;
/// empty in a build without CUDA.
std::string runtime_driver();

/// File names of a library of CUDA 13 and of CUDA 12: "libcublasLt.so.13" and "libcublasLt.so.12" for "libcublasLt.so".
/// The one of this build's CUDA comes first, since a driver that a build with CUDA 12 is for may be too old for the
/// other.
std::vector<std::string> cuda_libraries(const std::string& name);

/// Bytes of memory of the context's GPU, used or not; 0 on the host and in a context without a stream.
std::size_t gpu_memory(const Context& ctx);

}  // namespace fp8::device
