// Stand-ins for builds without CUDA.
#include "cuda.h"
#include "fp8/base/error.h"

namespace fp8::gemm {
namespace {

constexpr const char* kNone = "matrix multiply: this build has no CUDA";

}  // namespace

std::unique_ptr<DeviceGemm> make_device_gemm() { throw Error(kNone); }
BuiltPlan build_for_test(const DevicePlan&) { throw Error(kNone); }
std::string device_library_version() { throw Error(kNone); }

}  // namespace fp8::gemm
