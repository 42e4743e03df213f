// Whole models through the CUDA kernels, which run on the host: the golden models against their reference values, and
// FP8 recipes against the host's code. The tests are those for a GPU; they take long.
#include "../gpu/gpu.h"
#include "long.h"
#undef FP8_NEED_GPU
#define FP8_NEED_GPU() FP8_LONG_TEST()
#include "../gpu/models_gpu_test.cc"  // NOLINT(bugprone-suspicious-include)

namespace fp8::golden {
namespace {

// A model with biases, and a mixture of experts.
TEST(Models, OfTwoFamiliesMatchGoldenValuesInBf16) {
  for (const char* const name : {"qwen2", "mixtral"})
    check_model(model_folder(name), name, DType::bf16, device::DeviceType::cuda);
}

}  // namespace
}  // namespace fp8::golden
