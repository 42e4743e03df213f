// AdamW on the host: one pass over a block in chunks of a fixed size. Elements are independent except for the amax, a
// maximum, so threads and blocks do not change any bit.
#include "fp8/optim/adamw.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <type_traits>

#include "adamw_element.h"
#include "adamw_kernels.h"
#include "cuda.h"
#include "fp8/base/error.h"
#include "fp8/device/profile.h"
#include "type_index.h"

namespace fp8::optim {
namespace {

using dtype::DType;

std::uint32_t update(const AdamwBlock& b, bool copies, const Settings& settings, const Scalars& scalars) {
  const std::size_t compute_weight =
      copies ? type_index(b.compute_weight.dtype, "AdamW: compute weight") : kNoComputeWeight;
  const auto kernel =
      adamw_kernels()
          .update[type_index(b.master.dtype, "AdamW: master")][type_index(b.m.dtype, "AdamW: moments")][compute_weight];
  const Update u{
      .arrays = {b.master.data, b.gradient.as<float>(), b.m.data, b.v.data, copies ? b.compute_weight.data : nullptr},
      .coefficients = coefficients_of(settings, scalars, b.decay),
      .gate = *scalars.gate,
      .random = {scalars.seed, scalars.update, b.tensor, b.first_element}};
  const std::int64_t n = b.master.size();
  std::uint32_t amax = 0;
#pragma omp parallel for schedule(static) num_threads(device::host_threads()) reduction(max : amax) if (n > kChunk)
  for (std::int64_t begin = 0; begin < n; begin += kChunk)
    amax = std::max(amax, kernel(u, begin, std::min(begin + kChunk, n)));
  return amax;
}

void check(const Context& ctx, const AdamwBlock& b) {
  const auto fits = [&](const View& view, const char* what) {
    if (view.size() != b.master.size()) throw Error(std::string("AdamW: ") + what + " differs from master in size");
    if (!view.contiguous()) throw Error(std::string("AdamW: ") + what + " is not contiguous");
    if (view.device != ctx.device) throw Error(std::string("AdamW: ") + what + " is not on the context's device");
  };
  fits(b.master, "master");
  fits(b.gradient, "gradient");
  fits(b.m, "first moment");
  fits(b.v, "second moment");
  if (b.m.dtype != b.v.dtype) throw Error("AdamW: moments differ in type");
  if (!b.compute_weight.empty()) fits(b.compute_weight, "compute weight");
  if (!b.amax.empty() && b.amax.size() != 1) throw Error("AdamW: amax must be a scalar");
}

}  // namespace

Scalars scalars_of(const Settings& settings, std::int64_t t, double lr, std::uint64_t seed, const Gate* gate) {
  if (t < 1) throw Error("AdamW: updates count from 1");
  const auto count = static_cast<double>(t);
  Scalars s;
  s.lr = static_cast<float>(lr);
  s.correction1 = static_cast<float>(1.0 - std::pow(static_cast<double>(settings.beta1), count));
  s.correction2_sqrt = static_cast<float>(std::sqrt(1.0 - std::pow(static_cast<double>(settings.beta2), count)));
  s.update = t;
  s.seed = seed;
  s.gate = gate;
  return s;
}

void set_gate(const Context& ctx, const double* loss, const double* square_sum, double clip, Gate* gate) {
  const device::Timer timer(ctx, device::Work::optimizer, "gate", 2 * sizeof(double) + sizeof(Gate));
  if (ctx.dry) return;
  if (ctx.device == device::DeviceType::cuda) return cuda::set_gate(ctx, loss, square_sum, clip, gate);
  *gate = gate_of(*loss, std::sqrt(*square_sum), clip);
}

void adamw(const Context& ctx, const AdamwBlock& block, const Settings& settings, const Scalars& scalars) {
  check(ctx, block);
  if (block.master.size() == 0) return;
  const bool same = block.compute_weight.data == block.master.data && block.compute_weight.dtype == block.master.dtype;
  const bool copies = !block.compute_weight.empty() && !same;
  const device::Timer timer(ctx, device::Work::optimizer, "AdamW",
                            2 * tensor::bytes_of(block.master, block.m, block.v) + tensor::bytes_of(block.gradient) +
                                (copies ? tensor::bytes_of(block.compute_weight) : 0.0),
                            15 * static_cast<double>(block.master.size()));
  if (ctx.dry) return;
  if (ctx.device == device::DeviceType::cuda) {
    AdamwBlock there = block;
    if (!copies) there.compute_weight = {};
    return cuda::adamw(ctx, there, settings, scalars);
  }
  const std::uint32_t amax = update(block, copies, settings, scalars);
  if (!block.amax.empty()) {
    float* largest = block.amax.as<float>();
    *largest = std::bit_cast<float>(std::max(amax, std::bit_cast<std::uint32_t>(*largest) & kMagnitude));
  }
}

}  // namespace fp8::optim
