// Describes calls for the library, and calls none.
#include "device_dry.h"

#include <algorithm>

namespace fp8::gemm {
namespace {

constexpr int kGroupedCapability = 90;  // that of the chips which compute several GEMMs in one call

// 0 if the device is unknown.
int capability_of(const Context& ctx) { return device::planned(ctx) ? ctx.profile->compute_capability : 0; }

}  // namespace

TogetherCalls::TogetherCalls(std::span<const Product> products, const MatmulOptions& options, int capability) {
  for (const Product& p : products) calls.push_back(describe(p.a, p.b, p.c, with_bias(options, p), capability));
  const bool unscaled = std::ranges::any_of(products, [](const Product& p) {
    return is_codes(p.a) && (p.a.inverse_scale.empty() || p.b.inverse_scale.empty());
  });
  if (!unscaled) plan = together(calls);
}

void DryGemm::run(const Context& ctx, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options) {
  if (c.size() > 0) scratch_.need(describe(a, b, c, options, capability_of(ctx)));
}

bool DryGemm::run_together(const Context& ctx, std::span<const Product> products, const MatmulOptions& options,
                           device::Span recorded) {
  if (!TogetherCalls(products, options, capability_of(ctx)).plan) return false;
  scratch_.need_together(products.size());
  if (!device::planned(ctx) || ctx.profile->compute_capability != kGroupedCapability) return false;
  recorded.launches = 1 + static_cast<int>(divide_up(std::ssize(products), std::int64_t{kGroupsOfLaunch}));
  const device::Timer timer(ctx, recorded);
  return true;
}

void DryGemm::add_kernels(const Context& ctx, const Product& product, const MatmulOptions& options,
                          device::Span& span) {
  span.launches = 0;
  if (product.c.size() == 0) return;
  const DeviceCall call = describe(product.a, product.b, product.c, options, capability_of(ctx));
  const bool multiplies = call.plan.k > 0;
  span.launches =
      (multiplies ? 1 : 0) + (call.finish ? 1 : 0) + (call.broadcast_a > 0 ? 1 : 0) + (call.broadcast_b > 0 ? 1 : 0);
  constexpr double kSum = 2 * sizeof(float);  // written and read again
  if (multiplies && call.finish) span.bytes += kSum * static_cast<double>(product.c.size());
}

}  // namespace fp8::gemm
