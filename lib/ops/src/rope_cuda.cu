// Rotary positions on a device: rope.cuh with the CUDA launcher.
#include "cuda.h"
#include "fp8/device/cuda.h"
#include "rope.cuh"

namespace fp8::ops::cuda {

void rope_tables(const Context& ctx, std::span<const float> inv_freq, const View& cos, const View& sin) {
  rope_tables_cuda(device::CudaLauncher(ctx), inv_freq, cos, sin);
}

void rope(const Context& ctx, const View& x, const View& cos, const View& sin, bool inverse) {
  rope_cuda(device::CudaLauncher(ctx), x, cos, sin, inverse);
}

}  // namespace fp8::ops::cuda
