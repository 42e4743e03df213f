// Layout and memory of a rank's parameters, and the update. Movement is in store_moves.cc.
#include "fp8/train/store.h"

#include <algorithm>

#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"

namespace fp8::train {

using tensor::allocate;

namespace {

// Slots whose parameters are vectors.
bool is_vector(const model::Parameter& p) { return p.shape.size() == 1; }

View rows_from(const View& matrix, std::int64_t first, std::int64_t count) {
  return matrix.empty() ? View{} : matrix.rows(first, first + count);
}

}  // namespace

ParameterStore::ParameterStore(const Context& ctx, comm::Communicator& group, const hf::ModelConfig& config,
                               std::vector<model::Parameter> table, const StoreOptions& options)
    : ctx_(ctx), group_(group), table_(std::move(table)), options_(options), tied_(config.tie_word_embeddings) {
  units_ = static_cast<int>(config.num_hidden_layers) + 2;
  build_slots(config);
  allocate_memory(ctx);
  allocate_buffers(ctx);
}

ParameterStore::~ParameterStore() = default;

// Which parameters share a slot, who owns which rows, which travel as codes.
void ParameterStore::build_slots(const hf::ModelConfig& config) {
  slots_.resize(static_cast<std::size_t>(units_));
  shards_.resize(table_.size());
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const model::Parameter& p = table_[i];
    SlotState& s = slots_[static_cast<std::size_t>(p.unit)][static_cast<std::size_t>(p.slot)];
    s.present = true;
    s.extent = model::slot_extent(config, p.slot);
    s.parameters.push_back(static_cast<int>(i));
    if (p.matmul() || (tied_ && p.role == model::ParameterRole::embedding))
      s.parts.push_back({p.slot_row, p.slot_row + p.rows(), p.fp8});
    shards_[i].number = static_cast<int>(i);
    shards_[i].rows = shard::rows_of(p.rows(), group_.rank(), group_.size());
    shards_[i].scale = -1;
    s.own_rows += shards_[i].rows.count();
  }
  const bool codes_travel =
      options_.fp8_all_gather && options_.fp8.recipe != nullptr && options_.fp8.recipe->fp8_all_gather;
  std::int64_t scales = 0;
  for (auto& unit : slots_) {
    for (SlotState& s : unit) {
      s.fp8_gathered = codes_travel && !s.parts.empty() &&
                       std::all_of(s.parts.begin(), s.parts.end(), [](const auto& p) { return p.fp8; });
      if (!s.fp8_gathered) continue;
      s.first_scale = scales;
      for (const int number : s.parameters) shards_[static_cast<std::size_t>(number)].scale = scales++;
    }
  }
}

View ParameterStore::matrix(const Context& ctx, DType dtype, std::int64_t rows, std::int64_t cols, bool vector,
                            std::string_view category) const {
  return vector ? allocate(ctx, dtype, {rows}, category) : allocate(ctx, dtype, {rows, cols}, category);
}

// Own rows of a slot's parameters lie one after the other: on one rank that is the whole fused matrix.
void ParameterStore::allocate_slot(const Context& ctx, SlotState& s) {
  const bool vector = is_vector(table_[static_cast<std::size_t>(s.parameters.front())]);
  const auto own = [&](DType dtype, std::string_view category) {
    return matrix(ctx, dtype, s.own_rows, s.extent.cols, vector, category);
  };
  const View master = own(options_.master, "master weights");
  View m, v;
  if (options_.training) {
    m = own(options_.moments, "moments");
    v = own(options_.moments, "moments");
    s.gradient_shard = own(DType::f32, "gradients");
    ops::zero(ctx, m);
    ops::zero(ctx, v);
  }
  if (s.fp8_gathered) s.codes_shard = own(DType::u8, "compute weights");
  if (!s.fp8_gathered)
    s.compute_shard = options_.master == options_.compute ? master : own(options_.compute, "compute weights");
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
    first += n;
  }
}

void ParameterStore::allocate_memory(const Context& ctx) {
  std::int64_t scales = 0;
  for (auto& unit : slots_) {
    for (SlotState& s : unit) {
      if (!s.present) continue;
      allocate_slot(ctx, s);
      if (s.fp8_gathered) scales += static_cast<std::int64_t>(s.parameters.size());
    }
  }
  if (scales == 0) return;
  amax_ = allocate(ctx, DType::f32, {scales}, "compute weights");
  scales_ = allocate(ctx, DType::f32, {scales}, "compute weights");
  inverse_scales_ = allocate(ctx, DType::f32, {scales}, "compute weights");
}

void ParameterStore::refresh_compute_weights(const Context& ctx) {
  if (!amax_.empty()) ops::zero(ctx, amax_);
  for (const ParameterShard& o : shards_) {
    if (o.rows.count() == 0) continue;
    if (!o.compute_weight.empty() && o.compute_weight.data != o.master.data) ops::copy(ctx, o.master, o.compute_weight);
    if (o.scale >= 0)
      quant::amax(ctx, o.master, quant::Granularity::tensor, quant::ContractionAxis::last,
                  amax_.rows(o.scale, o.scale + 1));
  }
  scales_and_codes(ctx);
}

// One reduction for the scales of all weights, then every rank casts its own rows straight from the masters.
void ParameterStore::scales_and_codes(const Context& ctx) {
  for (Gathered& g : gathered_) g.unit = -1;
  if (amax_.empty() || ctx.dry) return;
  const auto count = static_cast<std::size_t>(amax_.size());
  {
    const device::Timer timer(ctx, device::Work::communication, "all-reduce", 4.0 * static_cast<double>(count));
    group_.all_reduce(std::span<float>(amax_.as<float>(), count), comm::Reduce::amax);
  }
  const quant::Cast& cast = options_.fp8.recipe->w.columns;
  quant::scales_from_amax(ctx, amax_, cast.format, options_.fp8.options.power_of_2, scales_, inverse_scales_);
  for (const ParameterShard& o : shards_) {
    if (o.scale < 0 || o.rows.count() == 0) continue;
    quant::cast_to_bytes(ctx, o.master, cast.format, scales_.as<float>() + o.scale, o.codes,
                         options_.fp8.options.counts);
  }
}

void ParameterStore::add_gradient_squares(const Context& ctx, double* total) {
  for (const auto& unit : slots_) {
    for (const SlotState& s : unit) {
      if (s.present && s.own_rows > 0) optim::add_squares(ctx, s.gradient_shard, total);
    }
  }
  const device::Timer timer(ctx, device::Work::communication, "all-reduce", sizeof *total);
  group_.sum_here(std::span<double>(total, 1));
}

void ParameterStore::update(const Context& ctx, const optim::Settings& settings, const optim::Scalars& scalars) {
  if (!amax_.empty()) ops::zero(ctx, amax_);
  for (const ParameterShard& o : shards_) {
    if (o.rows.count() == 0) continue;
    const model::Parameter& p = table_[static_cast<std::size_t>(o.number)];
    optim::AdamwBlock block{o.master,
                            o.gradient,
                            o.m,
                            o.v,
                            o.compute_weight,
                            {},
                            p.decay,
                            static_cast<std::uint32_t>(o.number),
                            o.rows.begin * p.cols()};
    if (o.compute_weight.data == o.master.data) block.compute_weight = {};
    if (o.scale >= 0) block.amax = amax_.rows(o.scale, o.scale + 1);
    optim::adamw(ctx, block, settings, scalars);
  }
  scales_and_codes(ctx);
}

}  // namespace fp8::train
