/// Which CUDA runtime a build has.
#pragma once

#include <string>

namespace fp8::device {

/// "CUDA 13.1" of the runtime in this build, whether or not there is a GPU; empty in a build without CUDA.
std::string runtime_version();

}  // namespace fp8::device
