// Cross-entropy on a device: cross_entropy.cuh with the CUDA launcher.
#include "cross_entropy.cuh"
#include "cuda.h"
#include "fp8/device/cuda.h"

namespace fp8::ops::cuda {

void cross_entropy(const Context& ctx, const View& logits, const View& targets, const View& losses,
                   float gradient_scale, bool backward) {
  cross_entropy_cuda(device::CudaLauncher(ctx), logits, targets, losses, gradient_scale, backward);
}

}  // namespace fp8::ops::cuda
