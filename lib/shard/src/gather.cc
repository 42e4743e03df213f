// Buffers of whole weights, and their all-gathers.
#include "fp8/shard/gather.h"

#include <algorithm>

#include "fp8/base/round.h"
#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
#include "groups.h"
#include "pending.h"
#include "square.h"

namespace fp8::shard {

// Buffers that layers share have the wider type, since a filter may leave some layers in bf16.
WeightGatherer::WeightGatherer(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own,
                               const DgradScales& dgrad)
    : ctx_(ctx), mesh_(mesh), layout_(layout), own_(own), dgrad_(dgrad), buffers_(number_of_buffers(layout)) {
  const auto in_compute_format = [](const SlotLayout& s) { return s.present() && !s.gathers_codes(); };
  for (int unit = 0; unit < layout.unit_count(); ++unit)
    for (std::size_t i = 0; i < model::kSlots; ++i) {
      const SlotLayout& s = layout.unit(unit)[i];
      if (!s.present() || s.ranks == 1) continue;
      const std::int64_t rows = largest(layout, i, [](const auto& other) { return other.extent.rows; });
      const bool codes = largest(layout, i, in_compute_format) == 0;
      Buffer& b = buffers_[index(unit)];
      const auto matrix = [&](DType type) {
        return allocate_matrix(ctx, type, {rows, s.extent.cols}, s.vector, "gathered weights");
      };
      if (b.weight[i].empty()) b.weight[i] = matrix(codes ? DType::u8 : layout.options().compute);
      if (s.first_dgrad_scale >= 0 && b.dgrad_codes[i].empty()) b.dgrad_codes[i] = matrix(DType::u8);
      if (s.gathers_row_scales() && b.row_scales[i].empty())
        b.row_scales[i] = tensor::allocate(ctx, DType::f32, {rows}, "gathered weights");
      if (s.form != WeightForm::block_codes || !b.block_scales[i].empty()) continue;
      for (View* const v : {&b.block_scales[i], &b.inverse_block_scales[i]})
        *v = tensor::allocate(ctx, DType::f32, {rows / kSquare, divide_up(s.extent.cols, kSquare)}, "gathered weights");
    }
}

std::size_t WeightGatherer::index(int unit) const {
  const StoreOptions& options = layout_.options();
  return buffer_of(layout_, unit, options.zero < 3 || !options.reshard_after_forward);
}

WeightGatherer::Use WeightGatherer::use_of(const SlotLayout& s, linear::Pass pass) {
  return s.form != WeightForm::pass_codes ? every_pass : pass == linear::Pass::backward ? of_dgrad : of_forward;
}

View WeightGatherer::weight(int unit, std::size_t slot, linear::Pass pass) const {
  const SlotLayout& s = layout_.unit(unit)[slot];
  if (!s.present()) return {};
  if (s.ranks == 1) return own_.of(s, s.codes() ? &ParameterShard::codes : &ParameterShard::compute_weight);
  const Buffer& b = buffers_[index(unit)];
  View whole = (use_of(s, pass) == of_dgrad ? b.dgrad_codes : b.weight)[slot].rows(0, s.extent.rows);
  if (s.gathers_codes()) whole.dtype = DType::u8;
  if (s.packed()) whole = tensor::make_view(whole.data, DType::u8, whole.device, {s.extent.rows, s.stored_cols()});
  return whole;
}

View WeightGatherer::row_scales(int unit, std::size_t slot) const {
  const SlotLayout& s = layout_.unit(unit)[slot];
  if (!s.gathers_row_scales()) return {};
  if (s.ranks == 1) return own_.of(s, &ParameterShard::row_scales);
  return buffers_[index(unit)].row_scales[slot].rows(0, s.extent.rows);
}

View WeightGatherer::of_blocks(int unit, std::size_t slot, std::array<View, model::kSlots> Buffer::*scales) const {
  const SlotLayout& s = layout_.unit(unit)[slot];
  return (buffers_[index(unit)].*scales)[slot].rows(0, s.extent.rows / kSquare);
}

void WeightGatherer::discard(bool frozen) {
  for (Buffer& b : buffers_)
    for (Valid& valid : b.valid) valid = {false, valid.frozen && !frozen};
}

// Counts what this rank sends of its rows of a weight.
void WeightGatherer::count(const comm::Communicator& group, const Sharded& tensor) const {
  mesh_.traffic().add_gather(comm::Along::dp_shard, group, tensor.mine.dtype,
                             static_cast<std::int64_t>(tensor.mine.bytes()));
}

quant::CastOptions WeightGatherer::options_of(const SlotLayout& s) const {
  quant::CastOptions options = s.fp8.options;
  options.rule = s.fp8.recipe->scale_rule;
  if (!counts_casts_) options.counts = nullptr;
  return options;
}

void WeightGatherer::cast_rows(const ParameterShard& o, const SlotLayout& s, const View& codes,
                               const View& scales) const {
  quant::CastOptions options = options_of(s);
  if (const auto& tp = s.fp8.tensor_parallel; tp.ranks != nullptr && tp.axis == 1)
    options.split = {tp.ranks, tp.axis, tp.first_column, tp.columns};
  quant::cast_rows_to_bytes(ctx_, o.compute_weight, s.fp8.recipe->forward.w.format, options, codes, scales);
}

void WeightGatherer::cast_for_dgrad(const ParameterShard& o, const SlotLayout& s, const View& codes) const {
  const View scales = dgrad_.of(o.number);
  const DType format = s.fp8.recipe->dgrad.w.format;
  if (s.fp8.recipe->dgrad.w.granularity == quant::Granularity::tensor)
    quant::cast_to_bytes(ctx_, o.compute_weight, format, scales.as<float>(), codes, options_of(s).counts);
  else
    quant::cast_columns_to_bytes(ctx_, o.compute_weight, format, scales, codes, options_of(s).counts);
}

// Casts the rows of a parameter to codes and to their places in the scales of blocks.
std::vector<Sharded> WeightGatherer::blocks_of(const Buffer& b, std::size_t slot, const Sharded& codes,
                                               int number) const {
  const model::Parameter& p = layout_.parameter(number);
  const ParameterShard& o = own_.of(number);
  const SlotLayout& s = layout_.slot_of(number);
  const auto of_parameter = [&](const View& all) {
    const std::int64_t first = (p.slot_row - s.first_row) / kSquare;
    const View whole = all.rows(first, first + p.rows() / kSquare);
    return Sharded{whole.rows(o.rows.begin / kSquare, o.rows.end / kSquare), whole};
  };
  const Sharded scales = of_parameter(b.block_scales[slot]), inverse = of_parameter(b.inverse_block_scales[slot]);
  quant::cast_blocks_to_bytes(ctx_, o.compute_weight, options_of(s), codes.mine, scales.mine, inverse.mine);
  return {codes, scales, inverse};
}

// What is gathered of a parameter. Codes of a pass are cast to the place in the buffer from which they are sent.
std::vector<Sharded> WeightGatherer::tensors_of(const Buffer& b, int unit, std::size_t slot, int number,
                                                linear::Pass pass) const {
  const SlotLayout& s = layout_.unit(unit)[slot];
  const model::Parameter& p = layout_.parameter(number);
  const ParameterShard& o = own_.of(number);
  const View whole = s.rows_of(weight(unit, slot, pass), p);
  const Use use = use_of(s, pass);
  const View scales = s.gathers_row_scales() && use != of_dgrad ? s.rows_of(b.row_scales[slot], p) : View{};
  const View mine = whole.rows(o.rows.begin, o.rows.end);
  if (s.form == WeightForm::block_codes) return blocks_of(b, slot, {mine, whole}, number);
  if (use == every_pass) {
    std::vector<Sharded> tensors{{s.codes() ? o.codes : o.compute_weight, whole}};
    if (!scales.empty()) tensors.push_back({o.row_scales, scales});
    return tensors;
  }
  if (use == of_dgrad) {
    if (o.rows.count() > 0) cast_for_dgrad(o, s, mine);
    return {{mine, whole}};
  }
  const View mine_of_scales = scales.rows(o.rows.begin, o.rows.end);
  if (o.rows.count() > 0) cast_rows(o, s, mine, mine_of_scales);
  return {{mine, whole}, {mine_of_scales, scales}};
}

void WeightGatherer::prefetch(int unit, linear::Pass pass) {
  if (device::plans_memory(ctx_) || unit < 0 || unit >= layout_.unit_count() || !layout_.has_unit(unit)) return;
  Buffer& b = buffers_[index(unit)];
  if (b.unit != unit) b.valid = {};
  b.unit = unit;
  if (std::ranges::none_of(b.valid, &Valid::all)) b.pending.clear();
  const std::array<Valid, 3> before = b.valid;
  ByGroup by_group;
  for (std::size_t i = 0; i < model::kSlots; ++i) {
    const SlotLayout& s = layout_.unit(unit)[i];
    const Valid valid = before[use_of(s, pass)];
    if (s.ranks == 1 || valid.all || (!s.trainable && valid.frozen)) continue;
    comm::Communicator& group = group_of(mesh_, s);
    for (const int number : s.parameters)
      for (const Sharded& tensor : tensors_of(b, unit, i, number, pass)) {
        count(group, tensor);
        add(by_group, group, tensor);
      }
  }
  b.valid[every_pass] = b.valid[pass == linear::Pass::backward ? of_dgrad : of_forward] = {true, true};
  for (const auto& [group, tensors] : by_group)
    b.pending.push_back(start_pending(
        ctx_, "start gather", comm::exchange_of(device::ExchangeKind::all_gather, *group, bytes_of_whole(tensors)),
        [&] { return start_gathers(*group, tensors); }));
}

void WeightGatherer::unshard(const Context& ctx, int unit, linear::Pass pass) {
  prefetch(unit, pass);
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
