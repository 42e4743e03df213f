// The squared norm of a gradient, and the sum of losses, summed in an order that depends only on the length.
#include <algorithm>
#include <numeric>
#include <vector>

#include "adamw_kernels.h"
#include "cuda.h"
#include "fp8/base/error.h"
#include "fp8/device/profile.h"
#include "fp8/optim/adamw.h"
#include "update_sizes.h"

namespace fp8::optim {
namespace {

constexpr int kSumLaunches = 2;  // on a device: sums of pieces, and their sum

void check(const Context& ctx, const View& x) {
  if (!x.contiguous()) throw Error("sum: the input is not contiguous");
  if (x.device != ctx.device) throw Error("sum: the input is not on the context's device");
}

// Plans the memory of the partial sums of a device.
void plan_sums(const Context& ctx, const View& x) {
  if (ctx.device != device::DeviceType::cuda) return;
  const device::Scope scope(*ctx.arena);
  ctx.arena->allocate(static_cast<std::size_t>(pieces_to_sum(x.size())) * sizeof(double), "scratch");
}

}  // namespace

void add_squares(const Context& ctx, const View& x, double* total) {
  check(ctx, x);
  const device::Timer timer(ctx, device::Work::optimizer, "sum of squares", tensor::bytes_of(x),
                            2 * static_cast<double>(x.size()), kSumLaunches);
  if (ctx.dry) return plan_sums(ctx, x);
  if (ctx.device == device::DeviceType::cuda) return cuda::add_squares(ctx, x, total);
  const std::int64_t n = x.size(), blocks = pieces_to_sum(n);
  const float* data = x.as<const float>();
  const AdamwKernels& kernels = adamw_kernels();
  std::vector<double> partial(static_cast<std::size_t>(blocks));
#pragma omp parallel for schedule(static) num_threads(device::host_threads()) if (blocks > 1)
  for (std::int64_t b = 0; b < blocks; ++b) {
    partial[static_cast<std::size_t>(b)] =
        kernels.sum_of_squares(data + b * kSumPiece, std::min(kSumPiece, n - b * kSumPiece));
  }
  double sum = 0;
  for (const double part : partial) sum += part;
  *total += sum;
}

void add_in_order(const Context& ctx, std::span<const double> values, double* total) {
  const device::Timer timer(ctx, device::Work::optimizer, "sum in order", 8.0 * static_cast<double>(values.size()));
  if (ctx.dry) return;
  if (ctx.device == device::DeviceType::cuda) return cuda::add_in_order(ctx, values, total);
  for (const double value : values) *total += value;
}

void add_sum(const Context& ctx, const View& x, double* total) {
  check(ctx, x);
  const device::Timer timer(ctx, device::Work::cross_entropy, "sum of losses", tensor::bytes_of(x),
                            static_cast<double>(x.size()), kSumLaunches);
  if (ctx.dry) return plan_sums(ctx, x);
  if (ctx.device == device::DeviceType::cuda) return cuda::add_sum(ctx, x, total);
  const float* data = x.as<const float>();
  *total += std::accumulate(data, data + x.size(), 0.0);
}

}  // namespace fp8::optim
