// The kernel of this crate, in a source of its own: nvcc parses a source twice, and the sources of the communicators
// include much.
#include "cuda.h"
#include "fp8/device/cuda.h"
#include "fp8/device/magnitudes.h"

namespace fp8::comm::cuda {

void clear_signs(const device::Context& ctx, std::span<float> values) {
  device::clear_signs(device::CudaLauncher(ctx), values.data(), std::ssize(values));
}

}  // namespace fp8::comm::cuda
