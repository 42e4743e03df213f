// Buffers of whole weights, and their all-gathers.
#include "fp8/shard/gather.h"

#include <algorithm>

#include "fp8/base/round.h"
#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
#include "fp8/quant/groups.h"
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
      allocate(buffers_[index(unit)], i, s, codes ? DType::u8 : layout.options().compute, rows);
      if (!s.casts_together()) continue;
      const auto own_rows = [](const SlotLayout& other) { return other.casts_together() ? other.own_rows : 0; };
      allocate(sent_, i, s, DType::u8, largest(layout, i, own_rows));
    }
}

// Memory for rows of a slot, as far as it has none.
void WeightGatherer::allocate(Matrices& to, std::size_t slot, const SlotLayout& s, DType type,
                              std::int64_t rows) const {
  constexpr std::string_view kCategory = "gathered weights";
  const auto matrix = [&](DType of) { return allocate_matrix(ctx_, of, {rows, s.extent.cols}, s.vector, kCategory); };
  if (to.weight[slot].empty()) to.weight[slot] = matrix(type);
  if (s.first_dgrad_scale >= 0 && to.dgrad_codes[slot].empty()) to.dgrad_codes[slot] = matrix(DType::u8);
  if (s.gathers_row_scales() && to.row_scales[slot].empty())
    to.row_scales[slot] = tensor::allocate(ctx_, DType::f32, {rows}, kCategory);
  if (s.form != WeightForm::block_codes || !to.block_scales[slot].empty()) return;
  for (View* const v : {&to.block_scales[slot], &to.inverse_block_scales[slot]})
    *v = tensor::allocate(ctx_, DType::f32, {rows / kSquare, divide_up(s.extent.cols, kSquare)}, kCategory);
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

WeightGatherer::Coded WeightGatherer::Coded::rows(std::int64_t begin, std::int64_t end) const {
  const auto part = [](const View& v, std::int64_t first, std::int64_t last) {
    return v.empty() ? v : v.rows(first, last);
  };
  return {codes.rows(begin, end), part(row_scales, begin, end), part(block_scales, begin / kSquare, end / kSquare),
          part(inverse_block_scales, begin / kSquare, end / kSquare)};
}

// Codes that ranks cast for a gather.
WeightGatherer::Coded WeightGatherer::coded(const Matrices& all, const SlotLayout& s, std::size_t slot, Use use) {
  Coded c{(use == of_dgrad ? all.dgrad_codes : all.weight)[slot]};
  c.codes.dtype = DType::u8;
  if (use == of_forward) c.row_scales = all.row_scales[slot];
  if (s.form == WeightForm::block_codes) {
    c.block_scales = all.block_scales[slot];
    c.inverse_block_scales = all.inverse_block_scales[slot];
  }
  return c;
}

// Casts rows for forward, or for both passes if they have blocks.
void WeightGatherer::cast(const View& rows, const SlotLayout& s, const Coded& to) const {
  quant::CastOptions options = options_of(s);
  if (s.form == WeightForm::block_codes)
    return quant::cast_blocks_to_bytes(ctx_, rows, options, to.codes, to.block_scales, to.inverse_block_scales);
  if (const auto& tp = s.fp8.tensor_parallel; tp.ranks != nullptr && tp.axis == 1)
    options.split = {tp.ranks, tp.axis, tp.first_column, tp.columns};
  quant::cast_rows_to_bytes(ctx_, rows, s.fp8.recipe->forward.w.format, options, to.codes, to.row_scales);
}

void WeightGatherer::cast_for_dgrad(const ParameterShard& o, const SlotLayout& s, const View& codes) const {
  const View scales = dgrad_.of(o.number);
  const DType format = s.fp8.recipe->dgrad.w.format;
  if (s.fp8.recipe->dgrad.w.granularity == quant::Granularity::tensor)
    quant::cast_to_bytes(ctx_, o.compute_weight, format, scales.as<float>(), codes, options_of(s).counts);
  else
    quant::cast_columns_to_bytes(ctx_, o.compute_weight, format, scales, codes, options_of(s).counts);
}

// Scales of rows and of blocks do not depend on where a parameter begins.
void WeightGatherer::cast_together(const SlotLayout& s, std::size_t slot, Use use) const {
  if (s.own_rows == 0) return;
  const View own = own_.of(s, &ParameterShard::compute_weight);
  const Coded to = coded(sent_, s, slot, use).rows(0, s.own_rows);
  if (use != of_dgrad) return cast(own, s, to);
  quant::cast_groups_to_bytes(ctx_, own, own_.first_rows(s), s.fp8.recipe->dgrad.w.format, dgrad_.of(s), to.codes,
                              options_of(s).counts);
}

// What is gathered of a parameter. Codes that ranks cast for a gather are cast to the place in the buffer from which
// they are sent, unless own rows were cast together, those of this parameter from row `first` on.
std::vector<Sharded> WeightGatherer::tensors_of(const Buffer& b, std::size_t slot, int number, std::int64_t first,
                                                linear::Pass pass) const {
  const SlotLayout& s = layout_.slot_of(number);
  const model::Parameter& p = layout_.parameter(number);
  const ParameterShard& o = own_.of(number);
  const Use use = use_of(s, pass);
  if (use == every_pass && s.form != WeightForm::block_codes) {
    std::vector<Sharded> tensors{{s.codes() ? o.codes : o.compute_weight, s.rows_of(weight(p.unit, slot, pass), p)}};
    if (s.gathers_row_scales()) tensors.push_back({o.row_scales, s.rows_of(b.row_scales[slot], p)});
    return tensors;
  }
  const std::int64_t begin = p.slot_row - s.first_row, n = o.rows.count();
  const Coded whole = coded(b, s, slot, use).rows(begin, begin + p.rows());
  const Coded mine =
      s.casts_together() ? coded(sent_, s, slot, use).rows(first, first + n) : whole.rows(o.rows.begin, o.rows.end);
  if (!s.casts_together() && n > 0)
    use == of_dgrad ? cast_for_dgrad(o, s, mine.codes) : cast(o.compute_weight, s, mine);
  std::vector<Sharded> tensors{{mine.codes, whole.codes}};
  if (!whole.row_scales.empty()) tensors.push_back({mine.row_scales, whole.row_scales});
  if (s.form == WeightForm::block_codes) {
    tensors.push_back({mine.block_scales, whole.block_scales});
    tensors.push_back({mine.inverse_block_scales, whole.inverse_block_scales});
  }
  return tensors;
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
    if (s.casts_together()) cast_together(s, i, use_of(s, pass));
    std::int64_t first = 0;
    for (const int number : s.parameters) {
      for (const Sharded& tensor : tensors_of(b, i, number, first, pass)) {
        count(group, tensor);
        add(by_group, group, tensor);
      }
      first += own_.of(number).rows.count();
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
