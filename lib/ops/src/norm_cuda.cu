// RMSNorm on a device: norm.cuh with the CUDA launcher.
#include "fp8/device/cuda.h"
#include "norm.cuh"

namespace fp8::ops::cuda {

using device::CudaLauncher;

void norm_forward(const Context& ctx, const char* name, const View& x, const View& delta, const View& weight, float eps,
                  const View& sum, const View& y, const View& rstd) {
  norm_forward_cuda(CudaLauncher(ctx), name, x, delta, weight, eps, sum, y, rstd);
}

void norm_backward(const Context& ctx, const View& dy, const View& x, const View& weight, const View& rstd,
                   const View& upstream, const View& dx, const View& dweight, const View& partial) {
  norm_backward_cuda(CudaLauncher(ctx), dy, x, weight, rstd, upstream, dx, dweight, partial);
}

}  // namespace fp8::ops::cuda
