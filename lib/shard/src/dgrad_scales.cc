// Amaxes of the own rows, their maxima over the ranks, and the scales.
#include "fp8/shard/dgrad_scales.h"

#include <algorithm>
#include <vector>

#include "fp8/ops/norm.h"
#include "fp8/quant/groups.h"
#include "reduce_amaxes.h"

namespace fp8::shard {

using tensor::allocate;

DgradScales::DgradScales(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own)
    : mesh_(mesh), layout_(layout), own_(own) {
  const std::int64_t count = layout.dgrad_scales().count;
  if (count == 0) return;
  scales_ = allocate(ctx, DType::f32, {count}, "compute weights");
  inverse_scales_ = allocate(ctx, DType::f32, {count}, "compute weights");
}

View DgradScales::of_parts(const View& all, const SlotLayout& s, std::size_t first, std::size_t last) {
  const auto at = [&](std::size_t part) {
    return s.first_dgrad_scale + static_cast<std::int64_t>(part - s.first_held_part()) * s.dgrad_scales();
  };
  return all.rows(at(first), at(last));
}

View DgradScales::of(int number) const {
  const SlotLayout& s = layout_.slot_of(number);
  const std::size_t part = s.part_at(layout_.parameter(number).slot_row);
  return of_parts(scales_, s, part, part + 1);
}

View DgradScales::of(const SlotLayout& s) const {
  return of_parts(scales_, s, s.first_held_part(), s.part_at(layout_.parameter(s.parameters.back()).slot_row) + 1);
}

// A part is one parameter: recipes with scales of rows do not fuse projections.
void DgradScales::measure(const Context& ctx, const SlotLayout& s) {
  if (s.own_rows == 0) return;
  if (s.casts_together())
    return quant::amax_groups(ctx, own_.of(s, &ParameterShard::compute_weight), own_.first_rows(s),
                              s.fp8.recipe->dgrad.w.granularity, of(s));
  for (const int number : s.parameters)
    if (const ParameterShard& o = own_.of(number); o.rows.count() > 0)
      quant::amax(ctx, o.compute_weight, s.fp8.recipe->dgrad.w.granularity, quant::ContractionAxis::first, of(number));
}

void DgradScales::reduce(const Context& ctx) const {
  const DgradScaleNumbers& at = layout_.dgrad_scales();
  const auto reduce_some = [&](comm::Communicator& group, std::int64_t begin, std::int64_t end) {
    if (end > begin && group.size() > 1) reduce_amaxes(ctx, mesh_, group, scales_.rows(begin, end));
  };
  reduce_some(mesh_.shards(), 0, at.first_expert);
  reduce_some(mesh_.tensor(), 0, at.first_whole);
  reduce_some(mesh_.expert_shards(), at.first_expert, at.count);
}

void DgradScales::renew(const Context& ctx) {
  if (scales_.empty()) return;
  ops::zero(ctx, scales_);
  for (const SlotLayout& s : layout_.slots())
    if (s.first_dgrad_scale >= 0) measure(ctx, s);
  reduce(ctx);
  // Slots follow each other; those with the same rule are computed together.
  std::vector<const SlotLayout*> slots;
  for (const SlotLayout& s : layout_.slots())
    if (s.first_dgrad_scale >= 0) slots.push_back(&s);
  std::ranges::sort(slots, {}, &SlotLayout::first_dgrad_scale);
  for (std::size_t i = 0, end = 0; i < slots.size(); i = end) {
    const linear::LinearPrecision& fp8 = slots[i]->fp8;
    while (end < slots.size() && slots[end]->fp8.recipe == fp8.recipe) ++end;
    const std::int64_t first = slots[i]->first_dgrad_scale,
                       last = end < slots.size() ? slots[end]->first_dgrad_scale : scales_.size();
    quant::scales_from_amax(ctx, scales_.rows(first, last),
                            {fp8.recipe->dgrad.w.format, fp8.recipe->scale_rule, fp8.options.power_of_2},
                            scales_.rows(first, last), inverse_scales_.rows(first, last));
  }
}

}  // namespace fp8::shard
