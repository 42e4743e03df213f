// Stubs for builds without CUDA.
#include "cuda.h"

namespace fp8::gemm {

std::unique_ptr<DeviceGemm> make_device_gemm() { device::no_cuda(); }
std::string device_library_version() { device::no_cuda(); }

}  // namespace fp8::gemm
