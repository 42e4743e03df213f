// The linears of a unit, prepared for a pass: one for a slot, or one for each expert of this rank, as if its rows were
// a weight alone; and the update of the own rows.
#include "fp8/shard/store.h"

#include <algorithm>
#include <utility>

#include "element.h"
#include "fp8/linear/observer.h"
#include "fp8/ops/norm.h"
#include "fp8/optim/muon.h"
#include "fp8/quant/fold.h"
#include "fp8/quant/groups.h"
#include "fp8/quant/scale.h"
#include "model_sums.h"
#include "view_bytes.h"

namespace fp8::shard {

using model::UnitWeights;

namespace {

// Dropout, the rounding of stored BF16 and that of gradients have different seeds.
constexpr std::uint64_t kDropoutKey = 0x64726f706f7574, kRoundingKey = 0x726f756e64;

std::optional<TensorGroup> tensor_group(const comm::Mesh& mesh, const std::vector<model::Parameter>& table) {
  if (mesh.tensor().size() == 1) return std::nullopt;
  int copies = 1;
  for (const model::Parameter& p : table)
    if (p.slot == model::Slot::qkv) copies = std::max(copies, p.copies);
  return TensorGroup(mesh, copies);
}

StoreOptions with_ranks(StoreOptions options, const std::optional<TensorGroup>& tensor) {
  options.fp8.tensor_parallel.ranks = tensor ? &*tensor : nullptr;
  return options;
}

View rows_of_linear(const View& whole, std::int64_t begin, std::int64_t end) {
  return whole.empty() ? View{} : whole.rows(begin, end);
}

bool observed(const linear::LinearPrecision& fp8, model::Pass pass) {
  return linear::active_observer(fp8) != nullptr && pass != model::Pass::recompute;
}

}  // namespace

ParameterStore::ParameterStore(const Context& ctx, const comm::Mesh& mesh, const hf::ModelConfig& config,
                               std::vector<model::Parameter> table, const StoreOptions& options)
    : mesh_(mesh),
      tensor_(tensor_group(mesh, table)),
      layout_(mesh.shape(), mesh.all().rank(), config, std::move(table), with_ranks(options, tensor_)),
      own_(ctx, layout_),
      scales_(ctx, mesh, layout_, own_),
      dgrad_(ctx, mesh, layout_, own_),
      gather_(ctx, mesh, layout_, own_, dgrad_),
      gradients_(ctx, mesh, layout_, own_),
      muon_(mesh, layout_, own_),
      column_factors_(options.fp8.column_factors) {
  if (config.experts && mesh.experts().size() > 1) exchange_.emplace(mesh, config.experts->count, options.expert_rows);
  if (!config.lora) return;
  dropout_probability_ = static_cast<float>(config.lora->dropout);
  adapter_scaling_ = tensor::allocate(ctx, DType::f32, {1}, "compute weights");
  const auto scaling = static_cast<float>(config.lora->scaling());
  if (!ctx.dry)
    device::copy_bytes(ctx, adapter_scaling_.data, ctx.device, &scaling, device::DeviceType::host, sizeof scaling);
}

void ParameterStore::trace_gradients(GradientTrace* trace) {
  gradients_.trace(trace);
  gather_.discard(true);
}

void ParameterStore::refresh_compute_weights(const Context& ctx) {
  for (const ParameterShard& o : own_.parameters)
    if (o.rows.count() > 0 && !o.compute_weight.empty() && o.compute_weight.data != o.master.data)
      ops::copy(ctx, o.master, o.compute_weight);
  scales_.measure_all(ctx);
  gather_.discard(true);
  cast_codes(ctx);
}

void ParameterStore::end_calibration(const Context& ctx) {
  scales_.end_calibration(ctx);
  if (!ctx.dry) refresh_compute_weights(ctx);
}

// The codes of weights that are gathered in FP8: every rank casts its own rows from the masters. These casts are not
// counted: they are for the next step.
void ParameterStore::cast_codes(const Context& ctx) {
  if (layout_.options().fp8.recipe == nullptr) return;
  scales_.renew_current(ctx);
  for (const ParameterShard& o : own_.parameters) {
    if (o.rows.count() == 0) continue;
    const SlotLayout& s = layout_.slot_of(o.number);
    if (s.form == WeightForm::single_copy) {
      quant::CastOptions by_rows = s.fp8.options;
      by_rows.rule = s.fp8.recipe->scale_rule;
      by_rows.counts = nullptr;
      if (const auto& tp = s.fp8.tensor_parallel; tp.ranks != nullptr && tp.axis == 1)
        by_rows.split = {tp.ranks, tp.axis, tp.first_column, tp.columns};
      quant::cast_rows_to_bytes(ctx, o.master, s.fp8.recipe->forward.w.format, by_rows, o.codes, o.row_scales);
    }
  }
  for (const SlotLayout& s : layout_.slots())
    if ((s.form == WeightForm::gathered_codes || s.form == WeightForm::delayed_codes) && s.own_rows > 0)
      cast_parts(ctx, s);
  dgrad_.renew(ctx);
}

// The codes of a slot, of which each part has a scale, together.
void ParameterStore::cast_parts(const Context& ctx, const SlotLayout& s) {
  const std::int64_t begin = layout_.scale(s.parameters.front());
  std::int64_t scale = begin - 1;  // of the last group
  std::vector<std::int64_t> first{0};
  for (const int number : s.parameters) {
    if (layout_.scale(number) != scale) first.push_back(first.back());
    scale = layout_.scale(number);
    first.back() += layout_.rows(number).count();
  }
  SlotLinear parts;
  parts.first_part = static_cast<std::size_t>(begin - s.first_scale);
  parts.last_part = static_cast<std::size_t>(scale + 1 - s.first_scale);
  quant::cast_groups_to_bytes(ctx, own_.of(s, &ParameterShard::master), first, s.fp8.recipe->forward.w.format,
                              scales_.weights(s, parts), own_.of(s, &ParameterShard::codes), nullptr);
}

// The number in the step's global batch of the first row of the linears of a slot. Rows of experts come from all ranks
// that share them, and under tensor parallelism each rank routes a part of the tokens.
std::int64_t ParameterStore::first_row_of(const SlotLayout& s, const BatchPosition& at) const {
  if (!s.of_experts) return at.first_row;
  const int tp = mesh_.tensor().size(), first = mesh_.copy().rank() - mesh_.experts().rank();
  return at.first_row + (first / tp - mesh_.shards().rank()) * at.own_rows + rows_of(at.own_rows, first % tp, tp).begin;
}

linear::LinearPrecision ParameterStore::precision_of(const SlotLayout& s) const {
  linear::LinearPrecision fp8 = s.fp8;
  fp8.column_factors = column_factors_;
  const BatchPosition at = position_.value_or(BatchPosition{});
  fp8.options.random = {at.seed ^ kRoundingKey, static_cast<std::uint64_t>(at.step) << 24, first_row_of(s, at),
                        at.rows};
  if (!counts_casts_) fp8.options.counts = nullptr;
  return fp8;
}

// The parts of one of the linears of a slot, whose first row is 0.
std::vector<linear::Part> ParameterStore::parts_of(const SlotLayout& s, const SlotLinear& l) const {
  std::vector<linear::Part> own(s.parts.begin() + static_cast<std::ptrdiff_t>(l.first_part),
                                s.parts.begin() + static_cast<std::ptrdiff_t>(l.last_part));
  for (linear::Part& p : own) {
    p.begin -= l.begin;
    p.end -= l.begin;
    if (gemms_.empty()) continue;
    p.gemms = gemms_.at(static_cast<std::size_t>(p.number));
    p.fp8 = p.fp8 && (p.gemms.forward || p.gemms.dgrad || p.gemms.wgrad);
  }
  return own;
}

linear::NeededAmaxes ParameterStore::needed_of_down(int unit, model::Pass pass) const {
  if (unit < 1 || pass != model::Pass::backward || scales_.calibrating()) return {};
  const SlotLayout& s = layout_.unit(unit)[static_cast<std::size_t>(model::Slot::down)];
  if (!s.present()) return {};
  const std::vector<linear::Part> parts = parts_of(s, s.linears.front());
  return linear::needed_amaxes(precision_of(s), parts, scales_.known(s, s.linears.front(), parts, pass));
}

// The values of stored codes, f32 in memory from the arena.
View ParameterStore::dequantized(const Context& ctx, const SlotLayout& s, const SlotLinear& l,
                                 const linear::Codes& codes) const {
  const View values = tensor::allocate(ctx, DType::f32, {l.end - l.begin, s.extent.cols}, "gathered weights");
  const device::Scope scope(*ctx.arena);
  const linear::Weight weight =
      linear::prepare_codes(ctx, codes, {}, parts_of(s, l), precision_of(s), model::Pass::forward);
  for (const linear::Operand& o : weight.operands) {
    const View part = quant::dequantize(ctx, o.codes);
    if (!ctx.dry) ops::copy(ctx, part, values.rows(o.part.begin, o.part.end));
  }
  return values;
}

std::vector<linear::Weight> ParameterStore::prepare_weights(const Context& ctx, int unit, std::size_t slot,
                                                            model::Pass pass) const {
  const SlotLayout& s = layout_.unit(unit)[slot];
  const View weight = gather_.weight(unit, slot, pass), row_scales = gather_.row_scales(unit, slot),
             bias = bias_of(unit, slot, pass);
  View source;
  if (s.gathers_codes() && scales_.calibrating())
    source = gather_.gather_masters(ctx, s, layout_.options().compute);
  else if (s.gathers_codes() && observed(s.fp8, pass) && s.form != WeightForm::stored_codes)
    source = gather_.gather_masters(ctx, s, s.codes() ? layout_.options().master : layout_.options().compute);
  const bool scaled_parts = s.form == WeightForm::gathered_codes || s.form == WeightForm::delayed_codes;
  Whole all{weight, row_scales, bias, source};
  if (s.form == WeightForm::block_codes) {
    all.block_scales = gather_.block_scales(unit, slot);
    all.inverse_block_scales = gather_.inverse_block_scales(unit, slot);
  }
  if (s.of_experts && !scales_.calibrating() && (!s.codes() || scaled_parts) && !s.adapters)
    return prepare_experts(ctx, s, all, pass);
  std::vector<linear::Weight> weights;
  weights.reserve(s.linears.size());
  for (const SlotLinear& l : s.linears) {
    if (!layout_.has_expert(l.expert)) continue;
    const std::int64_t begin = l.begin - s.first_row, end = l.end - s.first_row;
    Whole whole = all;  // with all blocks, since only slots of one linear come here with them
    whole.weight = rows_of_linear(weight, begin, end);
    whole.row_scales = rows_of_linear(row_scales, begin, end);
    whole.source = rows_of_linear(source, begin, end);
    weights.push_back(prepare_linear(ctx, s, l, whole, pass));
  }
  return weights;
}

// The experts of this rank, which follow each other.
std::vector<linear::Weight> ParameterStore::prepare_experts(const Context& ctx, const SlotLayout& s, const Whole& whole,
                                                            model::Pass pass) const {
  std::vector<linear::GroupWeight> weights;
  SlotLinear all;  // the parts of all of them
  for (const SlotLinear& l : s.linears) {
    if (!layout_.has_expert(l.expert)) continue;
    if (weights.empty()) all = l;
    all.last_part = l.last_part;
    const std::vector<linear::Part> parts = parts_of(s, l);
    weights.push_back({parts, scales_.known(s, l, parts, pass)});
  }
  if (!s.gathers_codes()) return linear::prepare_groups(ctx, whole.weight, weights, precision_of(s), pass);
  return linear::prepare_codes_groups(ctx, codes_of(ctx, s, all, whole, pass), weights, precision_of(s), pass);
}

// The codes of a pass with their scales; not those that a checkpoint stores.
linear::Codes ParameterStore::codes_of(const Context& ctx, const SlotLayout& s, const SlotLinear& l, const Whole& whole,
                                       model::Pass pass) const {
  if (s.form == WeightForm::pass_codes && pass == model::Pass::backward)
    return {whole.weight, dgrad_.of(s, l), dgrad_.inverse(s, l), whole.source};
  if (s.form == WeightForm::block_codes)
    return {whole.weight, whole.block_scales, whole.inverse_block_scales, whole.source, true};
  if (s.gathers_row_scales())
    return {whole.weight, whole.row_scales, quant::reciprocals(ctx, whole.row_scales), whole.source};
  return {whole.weight, scales_.weights(s, l), scales_.inverse_weights(s, l), whole.source};
}

linear::Weight ParameterStore::prepare_linear(const Context& ctx, const SlotLayout& s, const SlotLinear& l,
                                              const Whole& whole, model::Pass pass) const {
  const std::vector<linear::Part> parts = parts_of(s, l);
  const linear::KnownScales known = scales_.known(s, l, parts, pass);
  if (scales_.calibrating())
    return linear::prepare(ctx, s.gathers_codes() ? whole.source : whole.weight, whole.bias, parts, {}, pass, known);
  const linear::LinearPrecision fp8 = precision_of(s);
  if (!s.gathers_codes()) return linear::prepare(ctx, whole.weight, whole.bias, parts, fp8, pass, known);
  if (s.form == WeightForm::stored_codes) {
    linear::Codes codes{whole.weight, {}, {}, {}};
    View factors = own_.of(parts.front().number).factors;  // those of all parts follow
    factors.shape[0] = 0;
    for (const linear::Part& part : parts) factors.shape[0] += s.factor_rows(part);
    if (s.packed()) {
      codes.scales = factors;
      codes.inverse_scales = own_.of(parts.front().number).amax;
      codes.inverse_scales.shape[0] = std::ssize(parts);
    } else {
      codes.inverse_scales = factors;
      codes.scales = quant::reciprocals(ctx, factors);
      if (factors.rank == 2) codes.scales = codes.scales.reshaped({factors.shape[0], factors.shape[1]});
    }
    if (observed(fp8, pass) && ctx.device == device::DeviceType::host) codes.source = dequantized(ctx, s, l, codes);
    return linear::prepare_codes(ctx, codes, whole.bias, parts, fp8, pass);
  }
  return linear::prepare_codes(ctx, codes_of(ctx, s, l, whole, pass), whole.bias, parts, fp8, pass, known);
}

// The bias of a slot's linear, whose slot follows.
View ParameterStore::bias_of(int unit, std::size_t slot, model::Pass pass) const {
  if (slot + 1 == model::kSlots) return {};
  const SlotLayout& next = layout_.unit(unit)[slot + 1];
  return next.present() && layout_.parameter(next.parameters.front()).role == model::ParameterRole::bias
             ? gather_.weight(unit, slot + 1, pass)
             : View{};
}

UnitWeights ParameterStore::unshard(const Context& ctx, int unit, model::Pass pass) {
  gather_.unshard(ctx, unit, pass);
  UnitWeights w;
  for (std::size_t i = 0; i < model::kSlots; ++i) {
    const SlotLayout& s = layout_.unit(unit)[i];
    const bool linear = !s.parts.empty() && !s.adapters;
    if (!linear || unit == 0) w.plain[i] = gather_.weight(unit, i, pass);
    if (!linear || !s.present()) continue;
    std::vector<linear::Weight> weights = prepare_weights(ctx, unit, i, pass);
    if (std::vector<linear::Weight>* const each = w.experts_of(static_cast<model::Slot>(i)))
      *each = std::move(weights);
    else
      w.matmul[i] = std::move(weights.front());
  }
  w.down_before = needed_of_down(unit - 1, pass);
  for (const model::AdaptedSlot& at : model::kAdaptedSlots) add_adapters(unit, at, w);
  return w;
}

// Each adapter belongs to one linear of its slot, and its part begins in that.
void ParameterStore::add_adapters(int unit, const model::AdaptedSlot& at, UnitWeights& weights) const {
  const UnitLayout& slots = layout_.unit(unit);
  const SlotLayout &of_a = slots[static_cast<std::size_t>(at.a)], &of_b = slots[static_cast<std::size_t>(at.b)];
  const std::vector<SlotLinear>& linears = slots[static_cast<std::size_t>(at.linear)].linears;
  std::vector<linear::Weight>* const linears_of_experts = weights.experts_of(at.linear);
  const auto rows = [&](model::Slot slot, int number) {
    return slots[static_cast<std::size_t>(slot)].rows_of(weights.vector(slot), layout_.parameter(number));
  };
  for (std::size_t i = 0; i < of_a.parameters.size(); ++i) {
    const int number = of_a.parameters[i];
    ops::Dropout dropout;
    const model::Parameter& adapter = layout_.parameter(number);
    if (position_)  // no other stream has the same step and number
      dropout = {dropout_probability_,
                 position_->seed ^ kDropoutKey,
                 static_cast<std::uint64_t>(position_->step) << 24 | static_cast<std::uint64_t>(number),
                 position_->first_row,
                 adapter.first_col(),
                 adapter.whole_shape().back()};
    linear::Part part = of_a.parts[i];
    const auto l = std::ranges::find_if(linears, [&](const SlotLinear& each) { return part.begin < each.end; });
    linear::Weight& weight = linears_of_experts != nullptr
                                 ? linears_of_experts->at(static_cast<std::size_t>(l->expert - layout_.experts().begin))
                                 : weights.matmul[static_cast<std::size_t>(at.linear)];
    part.begin -= l->begin;
    part.end -= l->begin;
    weight.adapters.push_back({part, rows(at.a, number), rows(at.b, of_b.parameters[i]), adapter_scaling_, dropout});
  }
}

ParameterStore::Written ParameterStore::written_by_update(const ParameterShard& o) const {
  Written w{o.compute_weight, {}, layout_.slot_of(o.number).form == WeightForm::delayed};  // in the compute format
  if (o.compute_weight.data == o.master.data) w.compute_weight = {};
  if (layout_.scale(o.number) >= 0 && !w.measured) w.amax = scales_.amax(o.number);
  return w;
}

View ParameterStore::allocate_changes(const Context& ctx) const {
  return tensor::allocate(ctx, DType::f64, {std::ssize(layout_.table())}, "changes of weights");
}

// The master of the own rows before an update, if its change is measured here; else empty.
View ParameterStore::before_update(const Context& ctx, const ParameterShard& o, const View& changes) const {
  const model::Parameter& p = layout_.parameter(o.number);
  if (changes.rank == 0 || !layout_.first_of_copies(p) || !layout_.owns(p)) return {};
  const View before = tensor::allocate(ctx, DType::f32, {o.master.size()}, "changes of weights");
  ops::copy(ctx, o.master, before);
  return before;
}

void ParameterStore::add_change(const Context& ctx, const ParameterShard& o, const View& before,
                                const View& changes) const {
  if (before.rank > 0)
    optim::add_squared_change(ctx, before, o.master.reshaped({o.master.size()}),
                              ctx.dry ? nullptr : changes.as<double>() + o.number);
}

void ParameterStore::update(const Context& ctx, gemm::Engine& engine, const optim::Settings& settings,
                            const optim::Scalars& scalars, const View& changes) {
  scales_.renew_delayed(ctx, &scalars.gate->skip);
  if (!layout_.frozen()) scales_.clear_current(ctx);
  if (changes.rank > 0) ops::zero(ctx, changes);
  for (const ParameterShard& o : own_.parameters) {
    const model::Parameter& p = layout_.parameter(o.number);
    if (o.rows.count() == 0 || !p.trainable) continue;
    if (p.muon) continue;
    const device::Scope scope(*ctx.arena);
    const View before = before_update(ctx, o, changes);
    const Written w = written_by_update(o);
    optim::adamw(ctx,
                 {o.master, o.gradient, o.m, o.v, w.compute_weight, w.amax, p.decay || settings.decay_all,
                  static_cast<std::uint32_t>(o.number), element_of(p, o.rows.begin)},
                 settings, scalars);
    add_change(ctx, o, before, changes);
    if (w.measured) scales_.measure(ctx, o.number);
  }
  muon_.compute(ctx, engine, scalars, [&](const ParameterShard& o, const View& direction) {
    const model::Parameter& p = layout_.parameter(o.number);
    const device::Scope scope(*ctx.arena);
    const View before = before_update(ctx, o, changes);
    const Written w = written_by_update(o);
    optim::muon(ctx,
                {o.master, direction, w.compute_weight, w.amax, p.whole_shape().front(), p.whole_shape().back(),
                 p.decay, static_cast<std::uint32_t>(o.number), element_of(p, o.rows.begin)},
                settings, scalars);
    add_change(ctx, o, before, changes);
    if (w.measured) scales_.measure(ctx, o.number);
  });
  if (changes.rank > 0) sum_over_model(ctx, mesh_, changes);
  gather_.discard(false);
  if (!layout_.frozen()) cast_codes(ctx);  // otherwise adapters have changed, and weights with scales have not
}

std::optional<std::string> ParameterStore::differing_replica(const Context& ctx) const {
  const std::vector<ParameterShard>& shards = own_.parameters;
  if (mesh_.replicas().size() == 1 && mesh_.tensor().size() == 1 && !layout_.tied_apart()) return std::nullopt;
  std::string digests;
  for (const ParameterShard& o : shards) {
    std::string each;
    for (const View& values : {o.master, o.m, o.v})
      if (!values.empty()) each += digest_of_values(ctx, values).hex();
    digests += digest_of(std::as_bytes(std::span(each))).hex();
  }
  const std::size_t each = digests.size() / shards.size();
  const auto differing = [&](comm::Communicator& group, const std::string& what,
                             const auto& first_of) -> std::optional<std::string> {
    const std::vector<std::string> all = group.all_gather(digests);
    for (std::size_t number = 0; number < shards.size(); ++number)
      for (std::size_t rank = 1; rank < all.size(); ++rank) {
        const std::size_t first = first_of(rank, table()[number]);
        if (all[rank].compare(number * each, each, all[first], number * each, each) != 0)
          return what + std::to_string(rank) + " of " + table()[number].name + " is not the same as " + what +
                 std::to_string(first) +
                 (group.progress().hosts().empty() ? ""
                                                   : ", in ranks " + group.text_of_rank(static_cast<int>(rank)) +
                                                         " and " + group.text_of_rank(static_cast<int>(first)));
      }
    return std::nullopt;
  };
  const auto found =
      differing(mesh_.replicas(), "replica ", [](std::size_t, const model::Parameter&) { return std::size_t{0}; });
  const auto copy = differing(mesh_.tensor(), "tp rank ", [](std::size_t rank, const model::Parameter& p) {
    const auto copies = static_cast<std::size_t>(p.copies);
    return p.expert >= 0 ? rank : rank / copies * copies;
  });
  if (found || copy || !layout_.tied_apart()) return found ? found : copy;
  const auto last = static_cast<std::size_t>(stage().stages - 1);
  return differing(mesh_.stages(), "stage ", [last](std::size_t stage, const model::Parameter& p) {
    return stage == last && p.role == model::ParameterRole::embedding ? 0 : stage;
  });
}

}  // namespace fp8::shard
