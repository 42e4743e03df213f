// Whole gradients of a step, one parameter at a time, for the file of fp8-step --gradients.
#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "fp8/shard/store.h"

namespace fp8::shard {

void ParameterStore::visit_gradients(const Context& ctx,
                                     const std::function<void(const model::Parameter&, const View&)>& visit) const {
  for (const ParameterShard& o : shards_) {
    const model::Parameter& p = table_[static_cast<std::size_t>(o.number)];
    if (!p.trainable) continue;
    if (device_comm_.size() == 1) {
      if (!ctx.dry) visit(p, o.gradient);
      continue;
    }
    const device::Scope scope(*ctx.arena);
    const View whole = matrix(ctx, DType::f32, p.rows(), p.cols(), p.shape.size() == 1, "gathered gradient");
    if (ctx.dry) continue;
    {
      const device::Timer timer(ctx, device::Work::communication, "gather gradient",
                                static_cast<double>(tensor::bytes_of(whole)));
      start_gather(device_comm_, o.gradient, whole).wait();
    }
    if (rank() == 0) visit(p, whole);
  }
}

void ParameterStore::zero_gradients(const Context& ctx) {
  for (const auto& unit : slots_)
    for (const SlotState& s : unit)
      if (s.trainable && s.own_rows > 0) ops::zero(ctx, s.gradient_shard);
}

}  // namespace fp8::shard
