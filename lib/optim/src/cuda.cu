// The templates of adamw.cuh and muon.cuh with the CUDA launcher.
#include "cuda.h"
#include "fp8/device/cuda.h"
#include "muon.cuh"

namespace fp8::optim::cuda {

using device::CudaLauncher;

void adamw(const Context& ctx, const AdamwBlock& block, const Settings& settings, const Scalars& scalars) {
  adamw_cuda(CudaLauncher(ctx), block, settings, scalars);
}

namespace {

template <class Of>
void add_sums_of(const Context& ctx, const View& x, double* total) {
  const device::Scope scope(*ctx.arena);
  const auto bytes = static_cast<std::size_t>(pieces_to_sum(x.size())) * sizeof(double);
  auto* const partial = reinterpret_cast<double*>(ctx.arena->allocate(bytes, "scratch"));
  if (x.size() > 0) add_sums_cuda<Of>(CudaLauncher(ctx), x.as<const float>(), x.size(), partial, total);
}

}  // namespace

void add_squares(const Context& ctx, const View& x, double* total) { add_sums_of<Square>(ctx, x, total); }

void add_sum(const Context& ctx, const View& x, double* total) { add_sums_of<Itself>(ctx, x, total); }

void add_in_order(const Context& ctx, std::span<const double> values, double* total) {
  add_in_order_cuda(CudaLauncher(ctx), values, total);
}

void set_gate(const Context& ctx, const double* loss, const double* square_sum, double clip, Gate* gate) {
  set_gate_cuda(CudaLauncher(ctx), loss, square_sum, clip, gate);
}

void momentum(const Context& ctx, const MomentumBlock& block, const Scalars& scalars) {
  momentum_cuda(CudaLauncher(ctx), block, scalars);
}

void muon(const Context& ctx, const MuonBlock& block, const Settings& settings, const Scalars& scalars) {
  muon_cuda(CudaLauncher(ctx), block, settings, scalars);
}

void divide(const Context& ctx, const View& x, const double* square_sum) {
  divide_cuda(CudaLauncher(ctx), x, square_sum);
}

void combine(const Context& ctx, const Combination& combination) { combine_cuda(CudaLauncher(ctx), combination); }

}  // namespace fp8::optim::cuda
