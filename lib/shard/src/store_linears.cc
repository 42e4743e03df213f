// The linears of a ParameterStore, prepared for a pass from what is gathered: one for a slot, or one for each expert
// of this rank, as if its rows were a weight alone; and the delayed scales of experts to which no row has come yet.
#include <algorithm>

#include "fp8/device/device.h"
#include "fp8/linear/observer.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
#include "fp8/shard/store.h"

namespace fp8::shard {
namespace {

View rows_of_linear(const View& whole, std::int64_t begin, std::int64_t end) {
  return whole.empty() ? View{} : whole.rows(begin, end);
}

}  // namespace

std::vector<linear::Part> ParameterStore::SlotState::parts_of(const SlotLinear& l) const {
  std::vector<linear::Part> own(parts.begin() + static_cast<std::ptrdiff_t>(l.first_part),
                                parts.begin() + static_cast<std::ptrdiff_t>(l.last_part));
  for (linear::Part& p : own) {
    p.begin -= l.begin;
    p.end -= l.begin;
  }
  return own;
}

// The values of stored codes, f32 in memory from the arena.
View ParameterStore::dequantized(const Context& ctx, const SlotState& s, const SlotLinear& l,
                                 const linear::Codes& codes) const {
  const View values = tensor::allocate(ctx, DType::f32, {l.end - l.begin, s.extent.cols}, "gathered weights");
  const device::Scope scope(*ctx.arena);
  const linear::Weight weight = linear::prepare_codes(ctx, codes, {}, s.parts_of(l), s.fp8, model::Pass::forward);
  for (const linear::Operand& o : weight.operands) {
    const View part = quant::dequantize(ctx, o.codes);
    if (!ctx.dry) ops::copy(ctx, part, values.rows(o.part.begin, o.part.end));
  }
  return values;
}

std::vector<linear::Weight> ParameterStore::prepare_weights(const Context& ctx, const SlotState& s, const Whole& whole,
                                                            model::Pass pass) {
  const linear::LinearPrecision& fp8 = s.fp8;
  const bool observed = fp8.observer != nullptr && fp8.observer->active() && pass != model::Pass::recompute;
  View source;
  if (s.codes() && calibrating_)
    source = gather_weight(ctx, s, options_.compute);
  else if (s.codes() && observed && s.form != WeightForm::stored_codes)
    source = gather_weight(ctx, s, options_.master);
  std::vector<linear::Weight> weights;
  weights.reserve(s.linears.size());
  for (const SlotLinear& l : s.linears) {
    if (!has_expert(l.expert)) continue;
    const std::int64_t begin = l.begin - s.first_row, end = l.end - s.first_row;
    weights.push_back(
        prepare_linear(ctx, s, l,
                       {rows_of_linear(whole.weight, begin, end), rows_of_linear(whole.row_scales, begin, end),
                        whole.bias, rows_of_linear(source, begin, end)},
                       pass));
  }
  return weights;
}

linear::Weight ParameterStore::prepare_linear(const Context& ctx, const SlotState& s, const SlotLinear& l,
                                              const Whole& whole, model::Pass pass) {
  const linear::KnownScales known = known_scales(s, l, pass);
  const std::vector<linear::Part> parts = s.parts_of(l);
  const linear::LinearPrecision& fp8 = s.fp8;
  if (calibrating_)
    return linear::prepare(ctx, s.codes() ? whole.source : whole.weight, whole.bias, parts, {}, pass, known);
  if (!s.codes()) return linear::prepare(ctx, whole.weight, whole.bias, parts, fp8, pass, known);
  linear::Codes codes{whole.weight, {}, {}, whole.source};
  if (s.form == WeightForm::stored_codes) {
    const bool observed = fp8.observer != nullptr && fp8.observer->active() && pass != model::Pass::recompute;
    codes.inverse_scales = s.factors.rows(l.factors.begin, l.factors.end);
    codes.scales = quant::reciprocals(ctx, codes.inverse_scales);
    if (s.factors.rank == 2)
      codes.scales = codes.scales.reshaped({codes.inverse_scales.shape[0], codes.inverse_scales.shape[1]});
    if (observed && ctx.device == device::DeviceType::host) codes.source = dequantized(ctx, s, l, codes);
    return linear::prepare_codes(ctx, codes, whole.bias, parts, fp8, pass);
  }
  if (s.form == WeightForm::single_copy) {
    codes.scales = whole.row_scales;
    codes.inverse_scales = quant::reciprocals(ctx, whole.row_scales);
  } else {
    const auto first = s.first_scale + static_cast<std::int64_t>(l.first_part),
               last = s.first_scale + static_cast<std::int64_t>(l.last_part);
    codes.scales = scales_.rows(first, last);
    codes.inverse_scales = inverse_scales_.rows(first, last);
  }
  return linear::prepare_codes(ctx, codes, whole.bias, parts, fp8, pass, known);
}

// Lists the tensors of experts that are cast. No history has an amax yet.
void ParameterStore::list_idle(const Context& ctx) {
  may_be_idle_.assign(has_history_.size(), 0);
  for (const ScaleState& s : scale_states_) {
    const model::Parameter& p = table_[static_cast<std::size_t>(s.parameter)];
    const quant::GemmSet& g = p.gemms;
    const bool cast = s.index < first_gradient_ ? g.forward || g.wgrad : g.dgrad || g.wgrad;
    if (p.expert >= 0 && s.index >= first_input_ && cast) may_be_idle_[static_cast<std::size_t>(s.index)] = 1;
  }
  unseen_ = may_be_idle_;
  if (std::ranges::find(unseen_, 1) != unseen_.end())
    newest_ = tensor::allocate(ctx, DType::f32, {scale_count_ - first_input_, 1}, "amax histories");
}

// Tensors whose loaded scale is of another format or margin, and which got no row in calibration, begin anew.
void ParameterStore::forget_idle(const Context& ctx) {
  const auto forgets = [this](std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    return may_be_idle_[i] != 0 && unseen_[i] == 0 && has_history_[i] == 0;
  };
  std::vector<std::int64_t> candidates;
  for (std::int64_t i = first_input_; i < scale_count_; ++i)
    if (forgets(i)) candidates.push_back(i);
  if (candidates.empty()) return;
  const View amaxes = amax_.rows(first_input_, scale_count_);
  reduce_amaxes(mesh_.all(), amaxes);
  const std::vector<float> found = tensor::to_host<float>(ctx, amaxes);
  for (const std::int64_t i : candidates) {
    if (found[static_cast<std::size_t>(i - first_input_)] != 0) continue;
    constexpr float kInitial = 1.0f;
    ops::zero(ctx, history_.rows(i - first_delayed_, i - first_delayed_ + 1));
    device::copy_bytes(ctx, scales_.as<float>() + i, ctx.device, &kInitial, device::DeviceType::host, sizeof kInitial);
    unseen_[static_cast<std::size_t>(i)] = 1;
  }
}

// Finds out which of the tensors that had no amax have one now. A history moves only when an amax is entered, so its
// newest is 0 if it is empty. A history of one amax is always empty between steps; there the scale tells.
void ParameterStore::find_unseen(const Context& ctx) {
  if (std::ranges::find(unseen_, 1) == unseen_.end()) return;
  const std::int64_t length = options_.delayed.history;
  const View scales = scales_.rows(first_input_, scale_count_).reshaped({newest_.shape[0], 1}),
             histories = history_.rows(first_input_ - first_delayed_, scale_count_ - first_delayed_);
  ops::copy(ctx, length > 1 ? histories.columns(length - 1, length) : scales, newest_);
  const std::vector<float> newest = tensor::to_host<float>(ctx, newest_);
  const float initial = length > 1 ? 0.0f : 1.0f;
  for (std::int64_t i = first_input_; i < scale_count_; ++i)
    if (newest[static_cast<std::size_t>(i - first_input_)] != initial) unseen_[static_cast<std::size_t>(i)] = 0;
}

}  // namespace fp8::shard
