// A rank's parameters: layout, memory, compute weights, all-gather, reduce-scatter, update. On one rank nothing is
// gathered or reduced: the decoder works on the own rows, which are the whole matrices.
#include "fp8/shard/store.h"

#include <algorithm>
#include <utility>

#include "fp8/base/round.h"
#include "fp8/device/device.h"
#include "fp8/device/profile.h"
#include "fp8/model/split.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
#include "fp8/quant/scale.h"
#include "square.h"

namespace fp8::shard {

using model::UnitWeights;
using tensor::allocate;

namespace {

constexpr std::uint64_t kDropoutKey = 0x64726f706f7574;  // dropout and stochastic rounding have different seeds

bool is_vector(const model::Parameter& p) { return p.shape.size() == 1; }

// A number that differs between the elements of a parameter, for the first element of a row of its block: the element's
// index in the whole, if whole rows are divided over ranks.
std::int64_t element_of(const model::Parameter& p, std::int64_t row) {
  if (p.first_col() == 0) return (p.first_row() + row) * p.cols();
  return p.rows() * p.first_col() + row * p.cols();
}

View rows_from(const View& matrix, std::int64_t first, std::int64_t count) {
  return matrix.empty() ? View{} : matrix.rows(first, first + count);
}

}  // namespace

ParameterStore::ParameterStore(const Context& ctx, const comm::Mesh& mesh, const hf::ModelConfig& config,
                               std::vector<model::Parameter> table, const StoreOptions& options)
    : ctx_(ctx), mesh_(mesh), table_(std::move(table)), options_(options), tied_(config.tie_word_embeddings) {
  const int layers = static_cast<int>(config.num_hidden_layers);
  units_ = layers + 2;
  if (options_.stages.empty()) options_.stages = {layers};
  stage_ = model::stage_of(options_.stages, mesh_.stages().rank());
  if (config.experts) expert_count_ = config.experts->count;
  if (expert_count_ > 0 && mesh_.experts().size() > 1) exchange_.emplace(mesh_, expert_count_, options_.expert_rows);
  build_tensor_group();
  frozen_ = std::ranges::any_of(table_, [](const model::Parameter& p) { return !p.trainable; });
  build_slots();
  build_adapters();
  build_scales();
  allocate_memory(ctx);
  allocate_buffers(ctx);
  allocate_adapters(ctx, config.lora);
}

ParameterStore::~ParameterStore() = default;

// Assigns parameters to slots and rows to ranks, and chooses the form of each slot.
void ParameterStore::build_slots() {
  slots_.resize(static_cast<std::size_t>(units_));
  shards_.resize(table_.size());
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const model::Parameter& p = table_[i];
    SlotState& s = slots_[static_cast<std::size_t>(p.unit)][static_cast<std::size_t>(p.slot)];
    const bool first = s.shards == nullptr;
    s.shards = p.expert < 0 ? &mesh_.shards() : &mesh_.expert_shards();
    const bool straddles = s.fp8.tensor_parallel.straddles;
    s.fp8 = precision_of(p);  // all parameters of a slot have the same, but for the blocks of their rows
    s.fp8.tensor_parallel.straddles = s.fp8.tensor_parallel.straddles || straddles;
    s.stored = first || s.stored == p.stored ? p.stored : DType::f32;
    if (p.matmul() || (tied_ && p.role == model::ParameterRole::embedding)) add_part(s, p, static_cast<int>(i));
    shards_[i].number = static_cast<int>(i);
    shards_[i].rows = rows_on(p, s.shards->rank());
    shards_[i].scale = -1;
    if (!has_unit(p.unit) || !has_expert(p.expert)) continue;
    if (s.parameters.empty()) s.first_row = p.slot_row;
    s.trainable = p.trainable;
    s.extent = {s.extent.rows + p.rows(), p.cols()};
    s.parameters.push_back(static_cast<int>(i));
    s.own_rows += shards_[i].rows.count();
  }
  for (auto& unit : slots_)
    for (SlotState& s : unit)
      if (s.shards != nullptr) s.form = form_of(s);
  alone_ = std::ranges::all_of(slots_, [](const auto& unit) {
    return std::ranges::all_of(unit, [](const SlotState& s) { return s.shards == nullptr || s.shards->size() == 1; });
  });
}

void ParameterStore::build_tensor_group() {
  if (mesh_.tensor().size() == 1) return;
  std::int64_t first_token = 0;
  int copies = 1;
  for (const model::Parameter& p : table_) {
    if (p.role == model::ParameterRole::embedding) first_token = p.first_row();
    if (p.slot == model::Slot::qkv) copies = std::max(copies, p.copies);
  }
  tensor_.emplace(mesh_, first_token, copies);
}

// The rows of this rank's block of a parameter that a rank of those that shard it has.
RowRange ParameterStore::rows_on(const model::Parameter& p, int shard) const {
  if (!has_unit(p.unit) || !has_expert(p.expert)) return {};
  return rows_of(p.rows(), shard, (p.expert < 0 ? mesh_.shards() : mesh_.expert_shards()).size());
}

void ParameterStore::add_part(SlotState& s, const model::Parameter& p, int number) {
  const std::int64_t end = p.slot_row + p.rows();
  if (s.linears.empty() || s.linears.back().expert != p.expert)
    s.linears.push_back({p.expert, p.slot_row, end, s.parts.size(), s.parts.size(), -1, {}});
  if (p.fused)
    s.parts.back().end = end;
  else
    s.parts.push_back({p.slot_row, end, p.fp8, p.gemms, number, p.first_row(), p.whole_shape().front()});
  s.linears.back().end = end;
  s.linears.back().last_part = s.parts.size();
}

linear::LinearPrecision ParameterStore::precision_of(const model::Parameter& p) const {
  linear::LinearPrecision fp8 = options_.fp8;
  if (p.expert >= 0) fp8.amax_reducer = nullptr;  // ranks without rows of the expert would not take part
  if (fp8.recipe == nullptr) return fp8;
  if (p.recipe != nullptr) {
    fp8.recipe = p.recipe;
    fp8.options.power_of_2 = options_.power_of_2.value_or(p.recipe->power_of_2);
  }
  if (tensor_ && !p.bounds.empty()) {
    fp8.tensor_parallel = {&*tensor_, p.tensor_parallel_axis, p.first_col(),
                           p.tensor_parallel_axis == 1 ? p.whole.back() : 0,
                           model::straddling_block(p, *fp8.recipe) != 0};
  }
  return fp8;
}

WeightForm ParameterStore::form_of(const SlotState& s) const {
  if (!s.trainable && is_fp8(s.stored)) return WeightForm::stored_codes;
  const quant::Recipe* const recipe = s.fp8.recipe;
  if (recipe == nullptr || std::ranges::none_of(s.parts, &linear::Part::fp8)) return WeightForm::compute;
  const bool delayed = recipe->scale_rule == quant::ScaleRule::delayed;
  const bool both =
      std::ranges::all_of(s.parts, [](const linear::Part& p) { return p.fp8 && p.gemms.forward && p.gemms.dgrad; });
  if (!options_.fp8_all_gather || !recipe->fp8_all_gather || !both)
    return delayed ? WeightForm::delayed : WeightForm::compute;
  if (recipe->single_copy) return WeightForm::single_copy;
  return delayed ? WeightForm::delayed_codes : WeightForm::gathered_codes;
}

// Finds the part of its linear that each adapter belongs to.
void ParameterStore::build_adapters() {
  for (auto& unit : slots_)
    for (const model::AdaptedSlot& at : model::kAdaptedSlots) {
      const SlotState& linear = unit[static_cast<std::size_t>(at.linear)];
      SlotState& a = unit[static_cast<std::size_t>(at.a)];
      a.adapters = a.present();
      for (const int number : a.parameters) {
        const std::string weight = model::adapted_module(table_[static_cast<std::size_t>(number)]) + ".weight";
        const auto found = std::ranges::find(linear.parameters, weight, [this](int n) -> const std::string& {
          return table_[static_cast<std::size_t>(n)].name;
        });
        const model::Parameter& p = table_[static_cast<std::size_t>(*found)];
        a.parts.push_back({p.slot_row, p.slot_row + p.rows(), p.fp8, p.gemms, *found});
      }
    }
}

View ParameterStore::matrix(const Context& ctx, DType dtype, std::int64_t rows, std::int64_t cols, bool vector,
                            std::string_view category) const {
  return vector ? allocate(ctx, dtype, {rows}, category) : allocate(ctx, dtype, {rows, cols}, category);
}

// The own rows of a slot's parameters are adjacent, so that on one rank they are the whole fused matrix.
void ParameterStore::allocate_slot(const Context& ctx, SlotState& s) {
  const bool vector = is_vector(table_[static_cast<std::size_t>(s.parameters.front())]);
  const auto own = [&](DType dtype, std::string_view category) {
    return matrix(ctx, dtype, s.own_rows, s.extent.cols, vector, category);
  };
  const DType stored = s.trainable ? options_.master : s.stored;
  const View master = s.master_shard = own(stored, s.trainable ? "master weights" : "frozen weights");
  View m, v;
  if (options_.training && s.trainable) s.gradient_shard = own(DType::f32, "gradients");
  if (options_.training && options_.updates && s.trainable) {
    m = own(options_.moments, "moments");
    v = own(options_.moments, "moments");
    ops::zero(ctx, m);
    ops::zero(ctx, v);
  }
  if (s.form == WeightForm::stored_codes) {
    s.codes_shard = master;
    s.codes_shard.dtype = DType::u8;
    allocate_factors(ctx, s);
  } else if (s.codes()) {
    s.codes_shard = own(DType::u8, "compute weights");
  } else {
    s.compute_shard = stored == options_.compute ? master : own(options_.compute, "compute weights");
  }
  if (s.form == WeightForm::single_copy)
    s.row_scales_shard = allocate(ctx, DType::f32, {s.own_rows}, "compute weights");
  std::int64_t first = 0;
  for (const int number : s.parameters) {
    ParameterShard& o = shards_[static_cast<std::size_t>(number)];
    const std::int64_t n = o.rows.count();
    o.master = rows_from(master, first, n);
    o.m = rows_from(m, first, n);
    o.v = rows_from(v, first, n);
    o.gradient = rows_from(s.gradient_shard, first, n);
    o.compute_weight = rows_from(s.compute_shard, first, n);
    o.codes = rows_from(s.codes_shard, first, n);
    o.row_scales = rows_from(s.row_scales_shard, first, n);
    first += n;
  }
}

// The factors of stored codes in the form of the recipe, whole on every rank.
void ParameterStore::allocate_factors(const Context& ctx, SlotState& s) {
  const bool blocks = s.fp8.recipe->forward.w.granularity == quant::Granularity::block128x128;
  const std::int64_t columns = divide_up(s.extent.cols, kSquare);
  const auto rows_for = [&](const linear::Part& p) {
    return blocks ? linear::block_rows({p}) : s.fp8.recipe->single_copy ? p.end - p.begin : 1;
  };
  std::int64_t rows = 0;
  for (const linear::Part& p : s.parts) rows += rows_for(p);
  s.factors = blocks ? allocate(ctx, DType::f32, {rows, columns}, "frozen weights")
                     : allocate(ctx, DType::f32, {rows}, "frozen weights");
  std::int64_t first = 0;
  for (SlotLinear& l : s.linears) {
    l.factors.begin = first;
    for (std::size_t i = l.first_part; i < l.last_part; ++i) {
      const std::int64_t last = first + rows_for(s.parts[i]);
      shards_[static_cast<std::size_t>(s.parts[i].number)].factors = s.factors.rows(first, last);
      first = last;
    }
    l.factors.end = first;
  }
}

void ParameterStore::allocate_memory(const Context& ctx) {
  for (auto& unit : slots_) {
    for (SlotState& s : unit)
      if (s.present()) allocate_slot(ctx, s);
  }
  allocate_scales(ctx);
}

void ParameterStore::allocate_adapters(const Context& ctx, const std::optional<hf::LoraConfig>& lora) {
  if (!lora) return;
  dropout_probability_ = static_cast<float>(lora->dropout);
  adapter_scaling_ = allocate(ctx, DType::f32, {1}, "compute weights");
  const auto scaling = static_cast<float>(lora->scaling());
  if (!ctx.dry)
    device::copy_bytes(ctx, adapter_scaling_.data, ctx.device, &scaling, device::DeviceType::host, sizeof scaling);
}

// The first and the last unit have a buffer each; layers alternate between two, or have one each.
std::size_t ParameterStore::buffer_of(int unit, bool every_unit) const {
  if (every_unit) return static_cast<std::size_t>(unit);
  if (unit == 0) return 0;
  if (unit == units_ - 1) return 1;
  return 2 + static_cast<std::size_t>(unit % 2);
}

// Buffers that layers share have the rows of the layer with the most, since adapters may differ in number, and the
// wider type, since a filter may leave some layers in bf16.
void ParameterStore::allocate_buffers(const Context& ctx) {
  allocate_sums(ctx);
  if (alone_) return;
  const bool keep = keeps_gathered(), whole_gradients = options_.zero == 1;
  gathered_.resize(keep ? static_cast<std::size_t>(units_) : 4);
  reducing_.resize(!options_.training ? 0 : whole_gradients ? static_cast<std::size_t>(units_) : 4);
  std::array<std::int64_t, kSlots> rows{}, own_rows{};
  std::array<DType, kSlots> types;
  types.fill(DType::u8);
  for (const auto& unit : slots_) {
    for (std::size_t i = 0; i < kSlots; ++i) {
      rows[i] = std::max(rows[i], unit[i].extent.rows);
      own_rows[i] = std::max(own_rows[i], unit[i].own_rows);
      if (unit[i].present() && !unit[i].codes()) types[i] = options_.compute;
    }
  }
  for (int unit = 0; unit < units_; ++unit) {
    for (std::size_t i = 0; i < kSlots; ++i) {
      const SlotState& s = slots_[static_cast<std::size_t>(unit)][i];
      if (!s.present()) continue;
      const bool vector = is_vector(table_[static_cast<std::size_t>(s.parameters.front())]);
      const bool gathers = s.shards->size() > 1;
      View& whole = gathered_[buffer_of(unit, keep)].slot[i];
      if (gathers && whole.empty()) whole = matrix(ctx, types[i], rows[i], s.extent.cols, vector, "gathered weights");
      View& row_scales = gathered_[buffer_of(unit, keep)].row_scales[i];
      if (gathers && s.form == WeightForm::single_copy && row_scales.empty())
        row_scales = allocate(ctx, DType::f32, {rows[i]}, "gathered weights");
      if (!options_.training || !s.trainable) continue;
      Reducing& r = reducing_[buffer_of(unit, whole_gradients)];
      if (r.slot[i].empty()) r.slot[i] = matrix(ctx, DType::f32, rows[i], s.extent.cols, vector, "gradient buffers");
      if (options_.several_micro_batches && !whole_gradients && r.incoming[i].empty() && own_rows[i] > 0)
        r.incoming[i] = matrix(ctx, DType::f32, own_rows[i], s.extent.cols, vector, "gradient buffers");
      if (options_.reduce == DType::f32 || s.shards->size() == 1 || !r.sent[i].empty()) continue;
      r.sent[i] = allocate(ctx, DType::bf16, {rows[i] * s.extent.cols}, "gradient buffers");
      r.terms[i] = allocate(ctx, DType::bf16, {s.shards->size() * own_rows[i] * s.extent.cols}, "gradient buffers");
    }
  }
}

void ParameterStore::refresh_compute_weights(const Context& ctx) {
  if (!amax_.empty()) ops::zero(ctx, amax_);
  if (delayed()) renew_scales(ctx, nullptr);  // reciprocals of loaded scales
  for (const ParameterShard& o : shards_) {
    if (o.rows.count() == 0) continue;
    if (!o.compute_weight.empty() && o.compute_weight.data != o.master.data) ops::copy(ctx, o.master, o.compute_weight);
    if (o.scale >= 0) measure_weight(ctx, o);
  }
  // The scale of a frozen weight follows from the weight itself, as it would from a history of equal amaxes.
  if (delayed() && frozen_) renew_scales(ctx, nullptr);
  for (Gathered& g : gathered_) g.frozen = -1;
  scales_and_codes(ctx);
}

// The scales of weights that are gathered in FP8, unless they are delayed; then every rank casts its own rows from the
// masters.
void ParameterStore::scales_and_codes(const Context& ctx) {
  for (Gathered& g : gathered_) g.unit = -1;
  if (options_.fp8.recipe == nullptr || ctx.dry) return;
  renew_current_scales(ctx);
  for (const ParameterShard& o : shards_) {
    if (o.rows.count() == 0) continue;
    const SlotState& s = slot_of(o);
    if (s.form == WeightForm::single_copy) {
      quant::CastOptions by_rows = s.fp8.options;
      by_rows.rule = s.fp8.recipe->scale_rule;
      if (const auto& tp = s.fp8.tensor_parallel; tp.ranks != nullptr && tp.axis == 1)
        by_rows.split = {tp.ranks, tp.axis, tp.first_column, tp.columns};
      quant::cast_rows_to_bytes(ctx, o.master, s.fp8.recipe->forward.w.format, by_rows, o.codes, o.row_scales);
    }
    if (s.form == WeightForm::gathered_codes || s.form == WeightForm::delayed_codes)
      quant::cast_to_bytes(ctx, o.master, s.fp8.recipe->forward.w.format, scales_.as<float>() + o.scale, o.codes,
                           s.fp8.options.counts);
  }
}

void ParameterStore::set_gemms(const std::vector<quant::GemmSet>& gemms) {
  for (auto& unit : slots_) {
    for (SlotState& s : unit) {
      for (linear::Part& part : s.parts) {
        const auto number = static_cast<std::size_t>(part.number);
        part.gemms = gemms.at(number);
        part.fp8 = table_[number].fp8 && (part.gemms.forward || part.gemms.dgrad || part.gemms.wgrad);
      }
    }
  }
}

void ParameterStore::set_column_factors(const View& factors) {
  for (auto& unit : slots_)
    for (SlotState& s : unit) s.fp8.column_factors = factors;
}

void ParameterStore::ByGroup::add(comm::Communicator& group, const Sharded& tensor) {
  auto found = std::ranges::find(groups_, &group, &decltype(groups_)::value_type::first);
  if (found == groups_.end()) found = groups_.insert(found, {&group, {}});
  found->second.push_back(tensor);
}

std::vector<comm::Request> ParameterStore::ByGroup::start(comm::Request (*operation)(comm::Communicator&,
                                                                                     std::span<const Sharded>)) const {
  std::vector<comm::Request> requests;
  for (const auto& [group, tensors] : groups_) requests.push_back(operation(*group, tensors));
  return requests;
}

ParameterStore::Gathered& ParameterStore::gathered(int unit) { return gathered_[buffer_of(unit, keeps_gathered())]; }

// The buffer of a slot as what is gathered in it: codes, or compute weights.
View ParameterStore::gathered_slot(int unit, std::size_t i) {
  const SlotState& s = slots_[static_cast<std::size_t>(unit)][i];
  View whole = gathered(unit).slot[i].rows(0, s.extent.rows);
  if (s.codes()) whole.dtype = DType::u8;
  return whole;
}

ParameterStore::Reducing& ParameterStore::reducing(int unit) { return reducing_[buffer_of(unit, options_.zero == 1)]; }

void ParameterStore::prefetch(int unit) {
  if (alone_ || ctx_.dry || unit < 0 || unit >= units_ || !has_unit(unit)) return;
  Gathered& g = gathered(unit);
  if (g.unit == unit) return;
  const device::Timer timer(ctx_, device::Work::communication, "start gather", 0);
  g.requests.clear();
  g.unit = unit;
  g.bytes = 0;
  ByGroup tensors;
  for (std::size_t i = 0; i < kSlots; ++i) {
    const SlotState& s = slots_[static_cast<std::size_t>(unit)][i];
    if (s.shards == nullptr || s.shards->size() == 1 || (!s.trainable && g.frozen == unit)) continue;
    for (const int number : s.parameters) {
      const model::Parameter& p = table_[static_cast<std::size_t>(number)];
      const ParameterShard& o = shards_[static_cast<std::size_t>(number)];
      const View whole = s.rows_of(gathered_slot(unit, i), p);
      g.bytes += tensor::bytes_of(whole);
      const auto add = [&](const Sharded& tensor) {
        count_gather(*s.shards, tensor);
        tensors.add(*s.shards, tensor);
      };
      add({s.codes() ? o.codes : o.compute_weight, whole});
      if (s.form == WeightForm::single_copy) add({o.row_scales, s.rows_of(g.row_scales[i], p)});
    }
  }
  g.requests = tensors.start(start_gathers);
  g.frozen = unit;
}

UnitWeights ParameterStore::unshard(const Context& ctx, int unit, model::Pass pass) {
  prefetch(unit);
  if (!alone_ && !ctx_.dry) {
    Gathered& g = gathered(unit);
    const device::Timer timer(ctx, device::Work::communication, "gather", std::exchange(g.bytes, 0));
    for (comm::Request& request : g.requests) request.wait();
  }
  UnitWeights w;
  const auto& slots = slots_[static_cast<std::size_t>(unit)];
  const auto whole = [&](std::size_t i) {
    if (!slots[i].present()) return View{};
    if (slots[i].shards->size() > 1) return gathered_slot(unit, i);
    return slots[i].codes() ? slots[i].codes_shard : slots[i].compute_shard;
  };
  const auto bias_of = [&](std::size_t i) {
    const bool has =
        i + 1 < kSlots && slots[i + 1].present() && slots[i + 1].extent.cols == 1 &&
        table_[static_cast<std::size_t>(slots[i + 1].parameters.front())].role == model::ParameterRole::bias;
    // What ranks add up gets the bias when it is added up.
    const bool added_later =
        tensor_ && (i == static_cast<std::size_t>(model::Slot::o) || i == static_cast<std::size_t>(model::Slot::down));
    return has && !added_later ? whole(i + 1) : View{};
  };
  for (std::size_t i = 0; i < kSlots; ++i) {
    const SlotState& s = slots[i];
    if (!s.present()) continue;
    const bool linear = !s.parts.empty() && !s.adapters;
    if (!linear || unit == 0) w.plain[i] = whole(i);
    if (!linear) continue;
    std::vector<linear::Weight> weights = prepare_weights(
        ctx, s, {whole(i), s.shards->size() == 1 ? s.row_scales_shard : gathered(unit).row_scales[i], bias_of(i), {}},
        pass);
    if (std::vector<linear::Weight>* const each = w.experts_of(static_cast<model::Slot>(i)))
      *each = std::move(weights);
    else
      w.matmul[i] = std::move(weights.front());
  }
  w.down_before = needed_of_down(unit - 1, pass);
  for (const model::AdaptedSlot& at : model::kAdaptedSlots) add_adapters(unit, at, w);
  return w;
}

linear::NeededAmaxes ParameterStore::needed_of_down(int unit, model::Pass pass) const {
  if (unit < 1 || pass != model::Pass::backward || calibrating_) return {};
  const SlotState& s = slots_[static_cast<std::size_t>(unit)][static_cast<std::size_t>(model::Slot::down)];
  return s.present() ? linear::needed_amaxes(s.fp8, s.parts, known_scales(s, s.linears.front(), pass))
                     : linear::NeededAmaxes{};
}

// Each adapter belongs to one linear of its slot, and its part begins in that.
void ParameterStore::add_adapters(int unit, const model::AdaptedSlot& at, UnitWeights& weights) const {
  const auto& slots = slots_[static_cast<std::size_t>(unit)];
  const SlotState &of_a = slots[static_cast<std::size_t>(at.a)], &of_b = slots[static_cast<std::size_t>(at.b)];
  const std::vector<SlotLinear>& linears = slots[static_cast<std::size_t>(at.linear)].linears;
  std::vector<linear::Weight>* const linears_of_experts = weights.experts_of(at.linear);
  const auto rows = [&](model::Slot slot, int number) {
    return slots[static_cast<std::size_t>(slot)].rows_of(weights.vector(slot),
                                                         table_[static_cast<std::size_t>(number)]);
  };
  for (std::size_t i = 0; i < of_a.parameters.size(); ++i) {
    const int number = of_a.parameters[i];
    ops::Dropout dropout;
    const model::Parameter& adapter = table_[static_cast<std::size_t>(number)];
    if (dropout_)  // no other stream has the same step and number
      dropout = {dropout_probability_,
                 dropout_->seed ^ kDropoutKey,
                 static_cast<std::uint64_t>(dropout_->step) << 24 | static_cast<std::uint64_t>(number),
                 dropout_->first_row,
                 adapter.first_col(),
                 adapter.whole_shape().back()};
    linear::Part part = of_a.parts[i];
    const auto l = std::ranges::find_if(linears, [&](const SlotLinear& each) { return part.begin < each.end; });
    linear::Weight& weight = linears_of_experts != nullptr
                                 ? linears_of_experts->at(static_cast<std::size_t>(l->expert - experts().begin))
                                 : weights.matmul[static_cast<std::size_t>(at.linear)];
    part.begin -= l->begin;
    part.end -= l->begin;
    weight.adapters.push_back({part, rows(at.a, number), rows(at.b, of_b.parameters[i]), adapter_scaling_, dropout});
  }
}

void ParameterStore::begin_micro_batch(int index, int count) {
  micro_ = index;
  micro_count_ = count;
}

void ParameterStore::update(const Context& ctx, const optim::Settings& settings, const optim::Scalars& scalars) {
  if (delayed()) renew_scales(ctx, &scalars.gate->skip);
  if (first_delayed_ > 0 && !frozen_) ops::zero(ctx, amax_.rows(0, first_delayed_));
  for (const ParameterShard& o : shards_) {
    const model::Parameter& p = table_[static_cast<std::size_t>(o.number)];
    if (o.rows.count() == 0 || !p.trainable) continue;
    optim::AdamwBlock block{o.master,
                            o.gradient,
                            o.m,
                            o.v,
                            o.compute_weight,
                            {},
                            p.decay,
                            static_cast<std::uint32_t>(o.number),
                            element_of(p, o.rows.begin)};
    if (o.compute_weight.data == o.master.data) block.compute_weight = {};
    const bool measured = slot_of(o).form == WeightForm::delayed;  // whether its amax is that of its compute weight
    if (o.scale >= 0 && !measured) block.amax = amax_.rows(o.scale, o.scale + 1);
    optim::adamw(ctx, block, settings, scalars);
    if (measured) measure_weight(ctx, o);
  }
  if (!frozen_) return scales_and_codes(ctx);
  for (Gathered& g : gathered_) g.unit = -1;  // adapters have changed, weights with scales have not
}

}  // namespace fp8::shard
