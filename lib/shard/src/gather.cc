// Buffers of whole weights, and their all-gathers.
#include "fp8/shard/gather.h"

#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "groups.h"
#include "pending.h"

namespace fp8::shard {

// Buffers that layers share have the wider type, since a filter may leave some layers in bf16.
WeightGatherer::WeightGatherer(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own)
    : ctx_(ctx), mesh_(mesh), layout_(layout), own_(own), buffers_(number_of_buffers(layout)) {
  const auto in_compute_format = [](const SlotLayout& s) { return s.present() && !s.codes(); };
  for (int unit = 0; unit < layout.unit_count(); ++unit)
    for (std::size_t i = 0; i < model::kSlots; ++i) {
      const SlotLayout& s = layout.unit(unit)[i];
      if (!s.present() || s.ranks == 1) continue;
      const std::int64_t rows = largest(layout, i, [](const auto& other) { return other.extent.rows; });
      const bool codes = largest(layout, i, in_compute_format) == 0;
      Buffer& b = buffers_[index(unit)];
      if (b.weight[i].empty())
        b.weight[i] = allocate_matrix(ctx, codes ? DType::u8 : layout.options().compute, {rows, s.extent.cols},
                                      s.vector, "gathered weights");
      if (s.form == WeightForm::single_copy && b.row_scales[i].empty())
        b.row_scales[i] = tensor::allocate(ctx, DType::f32, {rows}, "gathered weights");
    }
}

std::size_t WeightGatherer::index(int unit) const {
  const StoreOptions& options = layout_.options();
  return buffer_of(layout_, unit, options.zero < 3 || !options.reshard_after_forward);
}

View WeightGatherer::weight(int unit, std::size_t slot) const {
  const SlotLayout& s = layout_.unit(unit)[slot];
  if (!s.present()) return {};
  if (s.ranks == 1) return own_.of(s, s.codes() ? &ParameterShard::codes : &ParameterShard::compute_weight);
  View whole = buffers_[index(unit)].weight[slot].rows(0, s.extent.rows);
  if (s.codes()) whole.dtype = DType::u8;
  return whole;
}

View WeightGatherer::row_scales(int unit, std::size_t slot) const {
  const SlotLayout& s = layout_.unit(unit)[slot];
  return s.ranks == 1 ? own_.of(s, &ParameterShard::row_scales) : buffers_[index(unit)].row_scales[slot];
}

void WeightGatherer::discard(bool frozen) {
  for (Buffer& b : buffers_) {
    b.unit = -1;
    if (frozen) b.frozen = -1;
  }
}

// Counts what this rank sends of its rows of a weight.
void WeightGatherer::count(const comm::Communicator& group, const Sharded& tensor) const {
  mesh_.traffic().add_gather(comm::Along::dp_shard, group, tensor.mine.dtype,
                             static_cast<std::int64_t>(tensor.mine.bytes()));
}

void WeightGatherer::prefetch(int unit) {
  if (device::plans_memory(ctx_) || unit < 0 || unit >= layout_.unit_count() || !layout_.has_unit(unit)) return;
  Buffer& b = buffers_[index(unit)];
  if (b.unit == unit) return;
  b.pending.clear();
  b.unit = unit;
  ByGroup by_group;
  for (std::size_t i = 0; i < model::kSlots; ++i) {
    const SlotLayout& s = layout_.unit(unit)[i];
    if (s.ranks == 1 || (!s.trainable && b.frozen == unit)) continue;
    for (const int number : s.parameters) {
      const model::Parameter& p = layout_.parameter(number);
      const ParameterShard& o = own_.of(number);
      const View whole = s.rows_of(weight(unit, i), p);
      const auto gather = [&](const Sharded& tensor) {
        count(group_of(mesh_, s), tensor);
        add(by_group, group_of(mesh_, s), tensor);
      };
      gather({s.codes() ? o.codes : o.compute_weight, whole});
      if (s.form == WeightForm::single_copy) gather({o.row_scales, s.rows_of(b.row_scales[i], p)});
    }
  }
  b.frozen = unit;
  for (const auto& [group, tensors] : by_group)
    b.pending.push_back(start_pending(
        ctx_, "start gather", comm::exchange_of(device::ExchangeKind::all_gather, *group, bytes_of_whole(tensors)),
        [&] { return start_gathers(*group, tensors); }));
}

void WeightGatherer::unshard(const Context& ctx, int unit) {
  prefetch(unit);
  Buffer& b = buffers_[index(unit)];
  for (Pending& pending : b.pending) wait(ctx, "gather", pending);
  b.pending.clear();
}

View WeightGatherer::gather_masters(const Context& ctx, const SlotLayout& s, DType type) const {
  const View whole = tensor::allocate(ctx, type, {s.extent.rows, s.extent.cols}, "gathered weights");
  for (const int number : s.parameters) {
    const model::Parameter& p = layout_.parameter(number);
    const ParameterShard& o = own_.of(number);
    const View own = tensor::allocate(ctx, type, {o.rows.count(), p.cols()}, "gathered weights");
    if (o.rows.count() > 0) ops::copy(ctx, o.master, own);
    const Sharded tensor{own, s.rows_of(whole, p)};
    comm::Communicator& group = group_of(mesh_, s);
    const device::Timer timer(ctx, comm::exchange_span("gather masters", device::ExchangeKind::all_gather, group,
                                                       tensor::bytes_of(tensor.whole)));
    if (ctx.dry) continue;
    count(group, tensor);
    start_gathers(group, {&tensor, 1}).wait();
  }
  return whole;
}

}  // namespace fp8::shard
