/// Version of the CUDA runtime in this build.
#pragma once

#include <string>

namespace fp8::device {

/// "CUDA 13.1", with or without a GPU; empty in a build without CUDA.
std::string runtime_version();

/// "driver 580 or newer": the drivers that can run this version, by NVIDIA's table of minor version compatibility;
/// empty in a build without CUDA.
std::string runtime_driver();

}  // namespace fp8::device
