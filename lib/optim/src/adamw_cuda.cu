// The CUDA side of this crate: the templates of adamw_cuda.cuh with the CUDA launcher.
#include "adamw_cuda.cuh"
#include "cuda.h"
#include "fp8/device/cuda.h"

namespace fp8::optim::cuda {

using device::CudaLauncher;

void adamw(const Context& ctx, const Block& block, const Settings& settings, const Scalars& scalars) {
  if (!ctx.dry) adamw_cuda(CudaLauncher(ctx), block, settings, scalars);
}

double sum_of_squares(const Context& ctx, const View& x) {
  const device::Scope scope(*ctx.arena);
  const auto bytes = static_cast<std::size_t>(pieces_to_sum(x.size()) + 1) * sizeof(double);
  auto* const partial = reinterpret_cast<double*>(ctx.arena->take(bytes, "scratch"));
  if (ctx.dry || x.size() == 0) return 0;
  double* const total = partial + pieces_to_sum(x.size());
  square_sum_cuda(CudaLauncher(ctx), x.as<const float>(), x.size(), partial, total);
  double sum = 0;
  device::copy_bytes(ctx, &sum, device::Place::host, total, device::Place::cuda, sizeof sum);
  return sum;
}

}  // namespace fp8::optim::cuda
