// Slots, forms, rows and numbers of scales, each computed once.
#include "fp8/shard/layout.h"

#include <algorithm>
#include <string>

#include "fp8/base/round.h"
#include "fp8/model/split.h"
#include "square.h"

namespace fp8::shard {

Layout::Layout(const comm::MeshShape& mesh, int rank, const hf::ModelConfig& config,
               std::vector<model::Parameter> table, const StoreOptions& options)
    : mesh_(mesh),
      table_(std::move(table)),
      options_(options),
      expert_count_(config.experts ? config.experts->count : 0),
      tied_(config.tie_word_embeddings),
      units_(static_cast<std::size_t>(config.num_hidden_layers) + 2),
      scale_of_(table_.size(), -1) {
  const int copy = mesh_.dp_shard * mesh_.tp;
  at_ = place_of(rank / (mesh_.dp_replicate * copy) * copy + rank % copy);
  if (options_.stages.empty()) options_.stages = {static_cast<int>(config.num_hidden_layers)};
  stage_ = model::stage_of(options_.stages, at_.stage);
  if (mesh_.dp_shard == 1 && (expert_count_ == 0 || expert_shards() == 1)) options_.zero = 1;
  frozen_ = std::ranges::any_of(table_, [](const model::Parameter& p) { return !p.trainable; });
  build_slots();
  build_adapters();
  number_scales();
  number_dgrad_scales();
}

std::size_t SlotLayout::part_at(std::int64_t row) const {
  return static_cast<std::size_t>(std::ranges::find_if(parts, [row](const linear::Part& p) { return row < p.end; }) -
                                  parts.begin());
}

std::size_t SlotLayout::first_held_part() const { return part_at(first_row); }

Layout::Place Layout::place_of(int rank_of_model) const {
  const int copy = mesh_.dp_shard * mesh_.tp, in_copy = rank_of_model % copy;
  return {rank_of_model / copy, in_copy / mesh_.tp, in_copy % mesh_.tp, in_copy % mesh_.ep, in_copy / mesh_.ep};
}

RowRange Layout::rows(int number) const {
  const model::Parameter& p = parameter(number);
  if (!has_unit(p.unit) || !has_expert(p.expert)) return {};
  return p.expert < 0 ? rows_of(p.rows(), at_.shard, mesh_.dp_shard)
                      : rows_of(p.rows(), at_.expert_shard, expert_shards());
}

Block Layout::block_on(const model::Parameter& p, int rank) const {
  Block block = held_on(p, rank);
  if (p.expert < 0 && place_of(rank).tensor % p.copies != 0) block.rows = {};
  return block;
}

Block Layout::held_on(const model::Parameter& p, int rank) const {
  const Place at = place_of(rank);
  const std::vector<std::int64_t>& whole = p.whole_shape();
  std::array<RowRange, 2> block{RowRange{0, whole.front()}, {0, whole.size() > 1 ? whole.back() : 1}};
  const Block none{{}, block[1]};
  if (!model::stage_of(options_.stages, at.stage).has(p.unit)) return none;
  if (p.expert >= 0) {
    const RowRange experts = experts_of(at.expert);
    if (p.expert < experts.begin || p.expert >= experts.end) return none;
    return {rows_of(whole.front(), at.expert_shard, expert_shards()), block[1]};
  }
  if (!p.bounds.empty()) {
    const auto index = static_cast<std::size_t>(at.tensor / p.copies);
    block[static_cast<std::size_t>(p.tensor_parallel_axis)] = {p.bounds[index], p.bounds[index + 1]};
  }
  const RowRange own = rows_of(block[0].count(), at.shard, mesh_.dp_shard);
  return {{block[0].begin + own.begin, block[0].begin + own.end}, block[1]};
}

namespace {

// Adds the rows of a parameter to the linears of its slot.
void add_part(SlotLayout& s, const model::Parameter& p, int number) {
  const std::int64_t end = p.slot_row + p.rows();
  if (s.linears.empty() || s.linears.back().expert != p.expert)
    s.linears.push_back({p.expert, p.slot_row, end, s.parts.size(), s.parts.size()});
  if (p.fused)
    s.parts.back().end = end;
  else
    s.parts.push_back({p.slot_row, end, p.fp8, p.gemms, number, p.first_row(), p.whole_shape().front()});
  s.linears.back().end = end;
  s.linears.back().last_part = s.parts.size();
}

}  // namespace

void Layout::build_slots() {
  for (int number = 0; number < static_cast<int>(table_.size()); ++number) {
    const model::Parameter& p = parameter(number);
    SlotLayout& s = units_[static_cast<std::size_t>(p.unit)][static_cast<std::size_t>(p.slot)];
    const bool straddles = s.fp8.tensor_parallel.straddles;
    s.fp8 = precision_of(p);  // all parameters of a slot have the same, but for the blocks of their rows
    s.fp8.tensor_parallel.straddles = s.fp8.tensor_parallel.straddles || straddles;
    s.stored = s.form == WeightForm::absent || s.stored == p.stored ? p.stored : DType::f32;
    s.form = WeightForm::compute;
    s.of_experts = p.expert >= 0;
    s.ranks = s.of_experts ? expert_shards() : mesh_.dp_shard;
    s.vector = p.shape.size() == 1;
    if (p.matmul() || (tied_ && p.role == model::ParameterRole::embedding)) add_part(s, p, number);
    if (!has_unit(p.unit) || !has_expert(p.expert)) continue;
    if (s.parameters.empty()) s.first_row = p.slot_row;
    s.trainable = p.trainable;
    s.muon = p.muon;
    s.extent = {s.extent.rows + p.rows(), p.cols()};
    s.parameters.push_back(number);
    s.own_rows += rows(number).count();
  }
  for (SlotLayout& s : std::views::join(units_))
    if (s.form != WeightForm::absent) s.form = form_of(s);
}

linear::LinearPrecision Layout::precision_of(const model::Parameter& p) const {
  linear::LinearPrecision fp8 = options_.fp8;
  const quant::AmaxReducer* const ranks = std::exchange(fp8.tensor_parallel, {}).ranks;
  if (p.expert >= 0) fp8.amax_reducer = nullptr;  // ranks without rows of the expert would not take part
  if (fp8.recipe == nullptr) return fp8;
  if (p.recipe != nullptr) {
    fp8.recipe = p.recipe;
    fp8.options.power_of_2 = options_.power_of_2.value_or(p.recipe->power_of_2);
  }
  if (ranks != nullptr && !p.bounds.empty()) {
    fp8.tensor_parallel = {ranks, p.tensor_parallel_axis, p.first_col(),
                           p.tensor_parallel_axis == 1 ? p.whole.back() : 0,
                           model::straddling_block(p, *fp8.recipe) != 0};
  }
  return fp8;
}

WeightForm Layout::form_of(const SlotLayout& s) const {
  if (!s.trainable && is_coded(s.stored)) return WeightForm::stored_codes;
  const quant::Recipe* const recipe = s.fp8.recipe;
  if (recipe == nullptr || std::ranges::none_of(s.parts, &linear::Part::fp8)) return WeightForm::compute;
  const bool delayed = recipe->scale_rule == quant::ScaleRule::delayed;
  const bool both =
      std::ranges::all_of(s.parts, [](const linear::Part& p) { return p.fp8 && p.gemms.forward && p.gemms.dgrad; });
  if (both && gathers_own_casts(s)) return recipe->casts_rows() ? WeightForm::pass_codes : WeightForm::block_codes;
  if (!options_.fp8_all_gather || !recipe->fp8_all_gather || !both)
    return delayed ? WeightForm::delayed : WeightForm::compute;
  if (recipe->single_copy) return WeightForm::single_copy;
  return delayed ? WeightForm::delayed_codes : WeightForm::gathered_codes;
}

// Whether ranks cast their rows of compute weights and gather the codes. With one rank nothing is gathered, and casts
// in each pass take no memory between passes. Blocks must end where shards do.
bool Layout::gathers_own_casts(const SlotLayout& s) const {
  const quant::Recipe& recipe = *s.fp8.recipe;
  if (!options_.fp8_all_gather || s.ranks == 1) return false;
  if (recipe.casts_rows()) return true;
  return recipe.casts_squares() && !s.fp8.options.emulate && !s.fp8.tensor_parallel.straddles &&
         std::ranges::all_of(s.parts,
                             [&](const linear::Part& p) { return (p.end - p.begin) % (s.ranks * kSquare) == 0; });
}

// Finds the part of its linear that each adapter belongs to.
void Layout::build_adapters() {
  for (UnitLayout& unit : units_)
    for (const model::AdaptedSlot& at : model::kAdaptedSlots) {
      const SlotLayout& linear = unit[static_cast<std::size_t>(at.linear)];
      SlotLayout& a = unit[static_cast<std::size_t>(at.a)];
      a.adapters = a.present();
      for (const int number : a.parameters) {
        const std::string weight = model::adapted_module(parameter(number)) + ".weight";
        const auto found = std::ranges::find(linear.parameters, weight,
                                             [this](int n) -> const std::string& { return parameter(n).name; });
        const model::Parameter& p = parameter(*found);
        a.parts.push_back({p.slot_row, p.slot_row + p.rows(), p.fp8, p.gemms, *found});
      }
    }
}

// The scales of a slot are adjacent.
void Layout::number_scales() {
  std::int64_t next = 0;
  const auto each = [&](bool delayed, const auto& body) {
    const std::int64_t first = next;
    for (SlotLayout& s : std::views::join(units_))
      if (s.scaled() && s.delayed() == delayed) body(s);
    return first;
  };
  const auto number_weights = [&](SlotLayout& s) {
    s.first_scale = next;
    for (const int number : s.parameters)
      scale_of_[static_cast<std::size_t>(number)] =
          next + static_cast<std::int64_t>(s.part_at(parameter(number).slot_row));
    next += static_cast<std::int64_t>(s.parts.size());
  };
  each(false, number_weights);
  scales_.first_delayed = each(true, number_weights);
  scales_.first_input = each(true, [&](SlotLayout& s) {
    for (SlotLinear& l : s.linears) l.input_scale = next++;
    scales_.delayed = s.fp8.recipe;
  });
  scales_.first_gradient = each(true, [&](SlotLayout& s) {
    s.first_gradient_scale = next;
    next += static_cast<std::int64_t>(s.parts.size());
  });
  scales_.count = next;
}

void Layout::number_dgrad_scales() {
  if (!options_.training) return;
  constexpr std::int64_t kStep = 4;  // f32 in 16 bytes
  const auto on_several = [](const SlotLayout& s) {
    const linear::TensorParallel& tp = s.fp8.tensor_parallel;
    return tp.ranks != nullptr && (tp.axis == 0 || s.fp8.recipe->dgrad.w.granularity == quant::Granularity::tensor);
  };
  std::int64_t next = 0;
  const auto each = [&](const auto& chosen) {
    for (SlotLayout& s : std::views::join(units_)) {
      if (s.form != WeightForm::pass_codes || !s.present() || !chosen(s)) continue;
      s.first_dgrad_scale = next;
      const std::size_t parts = s.part_at(parameter(s.parameters.back()).slot_row) + 1 - s.first_held_part();
      next = round_up(next + static_cast<std::int64_t>(parts) * s.dgrad_scales(), kStep);
    }
    return next;
  };
  dgrad_scales_.first_whole = each([&](const SlotLayout& s) { return !s.of_experts && on_several(s); });
  dgrad_scales_.first_expert = each([&](const SlotLayout& s) { return !s.of_experts && !on_several(s); });
  dgrad_scales_.count = each([](const SlotLayout& s) { return s.of_experts; });
}

}  // namespace fp8::shard
