// Scales of weights, delayed scales with their histories, calibration, and the scales of experts to which no row came.
#include "fp8/shard/scales.h"

#include <algorithm>

#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
#include "reduce_amaxes.h"

namespace fp8::shard {

using tensor::allocate;

Scales::Scales(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own)
    : mesh_(mesh), layout_(layout), own_(own), numbers_(layout.scales()) {
  if (numbers_.count == 0) return;
  amax_ = allocate(ctx, DType::f32, {numbers_.count}, "compute weights");
  scales_ = allocate(ctx, DType::f32, {numbers_.count}, "compute weights");
  inverse_scales_ = allocate(ctx, DType::f32, {numbers_.count}, "compute weights");
  if (numbers_.delayed == nullptr) return;
  history_ = allocate(ctx, DType::f32, {numbers_.count - numbers_.first_delayed, layout.options().delayed.history},
                      "amax histories");
  ops::zero(ctx, amax_);
  ops::zero(ctx, history_);
  const std::vector<float> ones(static_cast<std::size_t>(numbers_.count), 1.0f);
  if (!ctx.dry)
    for (const View& v : {scales_, inverse_scales_})
      device::copy_bytes(ctx, v.data, ctx.device, ones.data(), device::DeviceType::host, v.bytes());
  has_history_.assign(ones.size(), 0);
  list_states();
  list_idle(ctx);
}

// Lists states by parameter. Each fused projection that is FP8 has its own names. Scales of frozen weights are no
// state.
void Scales::list_states() {
  for (const SlotLayout& s : layout_.slots()) {
    if (!s.delayed()) continue;
    for (const SlotLinear& l : s.linears)
      for (std::size_t i = l.first_part; i < l.last_part; ++i) {
        if (!s.parts[i].fp8) continue;
        const std::string& weight = layout_.parameter(s.parts[i].number).name;
        const std::string linear = weight.substr(0, weight.rfind('.'));
        const auto add = [&](const char* tensor, std::int64_t index) {
          states_.push_back({linear + "/" + tensor, s.parts[i].number, scales_.rows(index, index + 1),
                             histories(index, index + 1).reshaped({layout_.options().delayed.history}), index});
        };
        const auto part = static_cast<std::int64_t>(i);
        add("input", l.input_scale);
        if (!layout_.frozen()) add("weight", s.first_scale + part);
        add("grad_output", s.first_gradient_scale + part);
      }
  }
}

void Scales::set_history(std::int64_t index) {
  const auto i = static_cast<std::size_t>(index);
  has_history_[i] = 1;
  unseen_[i] = may_be_idle_[i];
}

// In evaluation no gradient is cast.
bool Scales::needs_calibration() const {
  return std::ranges::any_of(states_, [&](const ScaleState& s) {
    return !has_scale(s.index) && (layout_.options().training || s.index < numbers_.first_gradient);
  });
}

quant::KnownScale Scales::known(std::int64_t index, bool record) const {
  return {scales_.rows(index, index + 1), inverse_scales_.rows(index, index + 1),
          record ? amax_.rows(index, index + 1) : View{}, is_set(unseen_, index)};
}

// Amaxes of inputs are recorded in forward, or in backward if no forward GEMM is FP8; amaxes of gradients in backward;
// amaxes of weights when the weights are measured.
linear::KnownScales Scales::known(const SlotLayout& s, const SlotLinear& l, const std::vector<linear::Part>& parts,
                                  linear::Pass pass) const {
  linear::KnownScales known_scales;
  if (!s.delayed()) return known_scales;
  const auto records = [&](std::int64_t index) { return recording_ && (!calibrating_ || !has_scale(index)); };
  const bool forward = std::ranges::any_of(parts, [](const linear::Part& p) { return p.fp8 && p.gemms.forward; });
  known_scales.x = known(l.input_scale,
                         pass == (forward ? linear::Pass::forward : linear::Pass::backward) && records(l.input_scale));
  for (auto i = static_cast<std::int64_t>(l.first_part); i < static_cast<std::int64_t>(l.last_part); ++i) {
    const std::int64_t dy = s.first_gradient_scale + i;
    known_scales.w.push_back(known(s.first_scale + i, false));
    known_scales.dy.push_back(known(dy, pass == linear::Pass::backward && records(dy)));
  }
  return known_scales;
}

// Fused projections have one scale; their own rows are adjacent, and are measured together.
void Scales::measure(const Context& ctx, int number) {
  const SlotLayout& s = layout_.slot_of(number);
  const std::int64_t scale = layout_.scale(number);
  const auto part = std::ranges::equal_range(s.parameters, scale, {}, [this](int n) { return layout_.scale(n); });
  View own = own_.of(part.front()).*(s.codes() ? &ParameterShard::master : &ParameterShard::compute_weight);
  own.shape[0] = 0;
  for (const int n : part) own.shape[0] += own_.of(n).rows.count();
  quant::amax(ctx, own, quant::Granularity::tensor, quant::ContractionAxis::last, amax_.rows(scale, scale + 1));
}

// The scale of a frozen weight follows from the weight itself, as it would from a history of equal amaxes.
void Scales::measure_all(const Context& ctx) {
  if (!amax_.empty()) ops::zero(ctx, amax_);
  renew_delayed(ctx, nullptr);  // reciprocals of loaded scales
  for (const ParameterShard& o : own_.parameters)
    if (o.rows.count() > 0 && layout_.scale(o.number) >= 0) measure(ctx, o.number);
  if (layout_.frozen()) renew_delayed(ctx, nullptr);
}

void Scales::clear_current(const Context& ctx) {
  if (numbers_.first_delayed > 0) ops::zero(ctx, amax_.rows(0, numbers_.first_delayed));
}

// One reduction for all of them. Adjacent slots with the same recipe are computed together.
void Scales::renew_current(const Context& ctx) {
  if (numbers_.first_delayed == 0) return;
  reduce_amaxes(ctx, mesh_, mesh_.copy(), amax_.rows(0, numbers_.first_delayed));
  std::int64_t begin = 0, end = 0;
  linear::LinearPrecision fp8;  // precision of the slots from `begin` on
  const auto finish = [&] {
    if (end > begin)
      quant::scales_from_amax(ctx, amax_.rows(begin, end),
                              {fp8.recipe->forward.w.format, fp8.recipe->scale_rule, fp8.options.power_of_2},
                              scales_.rows(begin, end), inverse_scales_.rows(begin, end));
    begin = end;
  };
  for (const SlotLayout& s : layout_.slots()) {
    if (!s.scaled() || s.delayed()) continue;
    if (s.fp8.recipe != fp8.recipe) finish();
    fp8 = s.fp8;
    end += static_cast<std::int64_t>(s.parts.size());
  }
  finish();
}

void Scales::renew_delayed(const Context& ctx, const std::int32_t* skip) {
  if (numbers_.delayed == nullptr) return;
  reduce_amaxes(ctx, mesh_, mesh_.all(), amax_.rows(numbers_.first_delayed, numbers_.count));
  const DelayedOptions& options = layout_.options().delayed;
  const auto renew = [&](std::int64_t begin, std::int64_t end, DType format) {
    quant::update_scales(
        ctx,
        {amax_.rows(begin, end), histories(begin, end), scales_.rows(begin, end), inverse_scales_.rows(begin, end)},
        quant::delayed_rule(format, options.margin, options.algorithm), skip);
  };
  renew(numbers_.first_delayed, numbers_.first_gradient, numbers_.delayed->forward.w.format);
  renew(numbers_.first_gradient, numbers_.count, numbers_.delayed->dgrad.dy.format);
  find_unseen(ctx);
}

void Scales::assume_calibrated() {
  has_history_.assign(has_history_.size(), 1);
  unseen_.assign(unseen_.size(), 0);
}

void Scales::end_calibration(const Context& ctx) {
  calibrating_ = false;
  if (numbers_.delayed == nullptr || ctx.dry) return;
  for (std::int64_t index = 0; index < numbers_.count; ++index)  // the amaxes of weights are always recorded
    if (has_scale(index)) ops::zero(ctx, amax_.rows(index, index + 1));
  forget_idle(ctx);
  renew_delayed(ctx, nullptr);
  has_history_.assign(has_history_.size(), 1);
}

// Lists the tensors of experts that are cast. No history has an amax yet.
void Scales::list_idle(const Context& ctx) {
  may_be_idle_.assign(has_history_.size(), 0);
  for (const ScaleState& s : states_) {
    const model::Parameter& p = layout_.parameter(s.parameter);
    const quant::GemmSet& g = p.gemms;
    const bool cast = s.index < numbers_.first_gradient ? g.forward || g.wgrad : g.dgrad || g.wgrad;
    if (p.expert >= 0 && s.index >= numbers_.first_input && cast) may_be_idle_[static_cast<std::size_t>(s.index)] = 1;
  }
  unseen_ = may_be_idle_;
  if (std::ranges::find(unseen_, 1) != unseen_.end())
    newest_ = allocate(ctx, DType::f32, {numbers_.count - numbers_.first_input, 1}, "amax histories");
}

// Tensors whose loaded scale is of another format or margin, and which got no row in calibration, begin anew.
void Scales::forget_idle(const Context& ctx) {
  std::vector<std::int64_t> candidates;
  for (std::int64_t i = numbers_.first_input; i < numbers_.count; ++i)
    if (is_set(may_be_idle_, i) && !is_set(unseen_, i) && !has_scale(i)) candidates.push_back(i);
  if (candidates.empty()) return;
  const View amaxes = amax_.rows(numbers_.first_input, numbers_.count);
  reduce_amaxes(ctx, mesh_, mesh_.all(), amaxes);
  const std::vector<float> found = tensor::to_host<float>(ctx, amaxes);
  for (const std::int64_t i : candidates) {
    if (found[static_cast<std::size_t>(i - numbers_.first_input)] != 0) continue;
    constexpr float kInitial = 1.0f;
    ops::zero(ctx, histories(i, i + 1));
    device::copy_bytes(ctx, scales_.as<float>() + i, ctx.device, &kInitial, device::DeviceType::host, sizeof kInitial);
    unseen_[static_cast<std::size_t>(i)] = 1;
  }
}

// Finds out which of the tensors that had no amax have one now. A history moves only when an amax is entered, so its
// newest is 0 if it is empty. A history of one amax is always empty between steps; there the scale tells.
void Scales::find_unseen(const Context& ctx) {
  if (std::ranges::find(unseen_, 1) == unseen_.end()) return;
  const std::int64_t length = layout_.options().delayed.history, first = numbers_.first_input;
  const View scales = scales_.rows(first, numbers_.count).reshaped({newest_.shape[0], 1});
  ops::copy(ctx, length > 1 ? histories(first, numbers_.count).columns(length - 1, length) : scales, newest_);
  const std::vector<float> newest = tensor::to_host<float>(ctx, newest_);
  if (ctx.dry) return;
  const float initial = length > 1 ? 0.0f : 1.0f;
  for (std::int64_t i = first; i < numbers_.count; ++i)
    if (newest[static_cast<std::size_t>(i - first)] != initial) unseen_[static_cast<std::size_t>(i)] = 0;
}

}  // namespace fp8::shard
