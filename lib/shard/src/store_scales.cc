// Scales of a ParameterStore: which tensors have one, delayed scales with their histories, and calibration.
#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/device/device.h"
#include "fp8/device/profile.h"
#include "fp8/linear/observer.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
#include "fp8/shard/store.h"

namespace fp8::shard {

// Numbers the scales: weights, those of a slot adjacent; delayed ones follow, then inputs, and gradients.
void ParameterStore::build_scales() {
  const auto each = [&](bool delayed, const auto& body) {
    for (auto& unit : slots_)
      for (SlotState& s : unit)
        if (s.scaled() && s.delayed() == delayed) body(s);
  };
  std::int64_t next = 0;
  const auto number_weights = [&](SlotState& s) {
    s.first_scale = next;
    for (const int number : s.parameters) {
      const std::int64_t row = table_[static_cast<std::size_t>(number)].slot_row;
      const auto part = std::ranges::find_if(s.parts, [&](const linear::Part& p) { return row < p.end; });
      shards_[static_cast<std::size_t>(number)].scale = next + (part - s.parts.begin());
    }
    next += static_cast<std::int64_t>(s.parts.size());
  };
  each(false, number_weights);
  first_delayed_ = next;
  each(true, number_weights);
  first_input_ = next;
  each(true, [&](SlotState& s) {
    for (SlotLinear& l : s.linears) l.input_scale = next++;
    delayed_ = s.fp8.recipe;
  });
  first_gradient_ = next;
  each(true, [&](SlotState& s) {
    s.first_gradient_scale = next;
    next += static_cast<std::int64_t>(s.parts.size());
  });
  scale_count_ = next;
}

// A delayed scale is 1 and its history 0 until they are loaded or calibrated.
void ParameterStore::allocate_scales(const Context& ctx) {
  if (scale_count_ == 0) return;
  amax_ = tensor::allocate(ctx, DType::f32, {scale_count_}, "compute weights");
  scales_ = tensor::allocate(ctx, DType::f32, {scale_count_}, "compute weights");
  inverse_scales_ = tensor::allocate(ctx, DType::f32, {scale_count_}, "compute weights");
  if (!delayed()) return;
  history_ =
      tensor::allocate(ctx, DType::f32, {scale_count_ - first_delayed_, options_.delayed.history}, "amax histories");
  ops::zero(ctx, amax_);
  ops::zero(ctx, history_);
  const std::vector<float> ones(static_cast<std::size_t>(scale_count_), 1.0f);
  if (!ctx.dry)
    for (const View& v : {scales_, inverse_scales_})
      device::copy_bytes(ctx, v.data, ctx.device, ones.data(), device::DeviceType::host, v.bytes());
  has_history_.assign(ones.size(), 0);
  list_scale_states();
  list_idle(ctx);
}

// Lists states by parameter. Each fused projection that is FP8 has its own names. Scales of frozen weights are no
// state.
void ParameterStore::list_scale_states() {
  for (const auto& unit : slots_)
    for (const SlotState& s : unit) {
      if (!s.delayed()) continue;
      for (const SlotLinear& l : s.linears)
        for (std::size_t i = l.first_part; i < l.last_part; ++i) {
          if (!s.parts[i].fp8) continue;
          const int number = s.parts[i].number;
          const std::string& weight = table_[static_cast<std::size_t>(number)].name;
          const std::string linear = weight.substr(0, weight.rfind('.'));
          const auto add = [&](const char* tensor, std::int64_t index) {
            scale_states_.push_back(
                {linear + "/" + tensor, number, scales_.rows(index, index + 1),
                 history_.rows(index - first_delayed_, index - first_delayed_ + 1).reshaped({options_.delayed.history}),
                 index});
          };
          const auto part = static_cast<std::int64_t>(i);
          add("input", l.input_scale);
          if (!frozen_) add("weight", s.first_scale + part);
          add("grad_output", s.first_gradient_scale + part);
        }
    }
}

// In evaluation no gradient is cast.
bool ParameterStore::needs_calibration() const {
  return std::any_of(scale_states_.begin(), scale_states_.end(), [&](const ScaleState& s) {
    return has_history_[static_cast<std::size_t>(s.index)] == 0 && (options_.training || s.index < first_gradient_);
  });
}

quant::KnownScale ParameterStore::known_scale(std::int64_t index, bool record) const {
  return {scales_.rows(index, index + 1), inverse_scales_.rows(index, index + 1),
          record ? amax_.rows(index, index + 1) : View{}, unseen_[static_cast<std::size_t>(index)] != 0};
}

// Amaxes of inputs are recorded in forward, or in backward if no forward GEMM is FP8; amaxes of gradients in backward;
// amaxes of weights from the masters, see measure_weight().
linear::KnownScales ParameterStore::known_scales(const SlotState& s, const SlotLinear& l, model::Pass pass) const {
  linear::KnownScales known;
  if (!s.delayed()) return known;
  const auto records = [&](std::int64_t index) {
    return recording_ && (!calibrating_ || has_history_[static_cast<std::size_t>(index)] == 0);
  };
  bool forward = false;
  for (std::size_t i = l.first_part; i < l.last_part; ++i)
    forward = forward || (s.parts[i].fp8 && s.parts[i].gemms.forward);
  known.x = known_scale(l.input_scale,
                        pass == (forward ? model::Pass::forward : model::Pass::backward) && records(l.input_scale));
  for (auto i = static_cast<std::int64_t>(l.first_part); i < static_cast<std::int64_t>(l.last_part); ++i) {
    const std::int64_t dy = s.first_gradient_scale + i;
    known.w.push_back(known_scale(s.first_scale + i, false));
    known.dy.push_back(known_scale(dy, pass == model::Pass::backward && records(dy)));
  }
  return known;
}

void ParameterStore::reduce_amaxes(comm::Communicator& group, const View& amaxes) const {
  const auto count = static_cast<std::size_t>(amaxes.size());
  const device::Timer timer(ctx_, device::Work::communication, "all-reduce", 4.0 * static_cast<double>(count));
  mesh_.traffic().add_all_reduce(comm::Along::several, group, DType::f32, amaxes.size());
  group.all_reduce(std::span<float>(amaxes.as<float>(), count), comm::Reduce::amax);
}

// The scales of weights that are gathered in FP8 and not delayed, with one reduction for all of them. Adjacent slots
// with the same recipe are computed together.
void ParameterStore::renew_current_scales(const Context& ctx) {
  if (first_delayed_ == 0) return;
  reduce_amaxes(mesh_.copy(), amax_.rows(0, first_delayed_));
  std::int64_t begin = 0, end = 0;
  linear::LinearPrecision fp8;  // precision of the slots from `begin` on
  const auto finish = [&] {
    if (end > begin)
      quant::scales_from_amax(ctx, amax_.rows(begin, end),
                              {fp8.recipe->forward.w.format, fp8.recipe->scale_rule, fp8.options.power_of_2},
                              scales_.rows(begin, end), inverse_scales_.rows(begin, end));
    begin = end;
  };
  for (const auto& unit : slots_)
    for (const SlotState& s : unit) {
      if (!s.scaled() || s.delayed()) continue;
      if (s.fp8.recipe != fp8.recipe) finish();
      fp8 = s.fp8;
      end += static_cast<std::int64_t>(s.parts.size());
    }
  finish();
}

// Delayed scales from the recorded amaxes of all ranks, which are then 0.
void ParameterStore::renew_scales(const Context& ctx, const std::int32_t* skip) {
  if (ctx.dry) return;
  reduce_amaxes(mesh_.all(), amax_.rows(first_delayed_, scale_count_));
  const auto renew = [&](std::int64_t begin, std::int64_t end, DType format) {
    quant::update_scales(ctx,
                         {amax_.rows(begin, end), history_.rows(begin - first_delayed_, end - first_delayed_),
                          scales_.rows(begin, end), inverse_scales_.rows(begin, end)},
                         quant::delayed_rule(format, options_.delayed.margin, options_.delayed.algorithm), skip);
  };
  renew(first_delayed_, first_gradient_, delayed_->forward.w.format);
  renew(first_gradient_, scale_count_, delayed_->dgrad.dy.format);
  find_unseen(ctx);
}

// The amax of the own rows of a weight, as they are cast: from the masters with FP8 all-gather, else from the
// compute weight. Fused projections have one scale; their own rows are adjacent, and are measured together.
void ParameterStore::measure_weight(const Context& ctx, const ParameterShard& o) {
  const SlotState& s = slot_of(o);
  const auto part = std::ranges::equal_range(
      s.parameters, o.scale, {}, [this](int number) { return shards_[static_cast<std::size_t>(number)].scale; });
  const ParameterShard& first = shards_[static_cast<std::size_t>(part.front())];
  View own = s.codes() ? first.master : first.compute_weight;
  own.shape[0] = 0;
  for (const int number : part) own.shape[0] += shards_[static_cast<std::size_t>(number)].rows.count();
  quant::amax(ctx, own, quant::Granularity::tensor, quant::ContractionAxis::last, amax_.rows(o.scale, o.scale + 1));
}

// The whole weight of a slot that has only codes, from the masters, in memory from the arena.
View ParameterStore::gather_weight(const Context& ctx, const SlotState& s, DType type) {
  const View whole = tensor::allocate(ctx, type, {s.extent.rows, s.extent.cols}, "gathered weights");
  for (const int number : s.parameters) {
    const model::Parameter& p = table_[static_cast<std::size_t>(number)];
    const ParameterShard& o = shards_[static_cast<std::size_t>(number)];
    const View own = tensor::allocate(ctx, type, {o.rows.count(), p.cols()}, "gathered weights");
    if (o.rows.count() > 0) ops::copy(ctx, o.master, own);
    if (ctx.dry) continue;
    const Sharded tensor{own, s.rows_of(whole, p)};
    count_gather(*s.shards, tensor);
    start_gathers(*s.shards, {&tensor, 1}).wait();
  }
  return whole;
}

void ParameterStore::end_calibration(const Context& ctx) {
  calibrating_ = false;
  if (ctx.dry) return;
  for (std::int64_t index = 0; index < scale_count_; ++index)  // the amaxes of weights are always recorded
    if (has_history_[static_cast<std::size_t>(index)] != 0) ops::zero(ctx, amax_.rows(index, index + 1));
  if (delayed()) {
    forget_idle(ctx);
    renew_scales(ctx, nullptr);
  }
  std::fill(has_history_.begin(), has_history_.end(), char{1});
  refresh_compute_weights(ctx);
}

}  // namespace fp8::shard
