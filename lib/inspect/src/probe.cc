// The forward pass restarts at the layer of the linears. Layer inputs are kept for one batch at a time. A rounding of
// weights that all sequences shared would move all their losses one way or the other, which their spread does not show.
#include "probe.h"

#include <algorithm>

#include "fp8/device/philox.h"

namespace fp8::inspect {
namespace {

Products products_of(const std::vector<float>& exact, const std::vector<float>& other) {
  Products p;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double g = exact[i], f = other[i];
    p += {g * g, f * f, g * f, (f - g) * (f - g)};
  }
  return p;
}

// Memory for a factor of each column of the widest linear.
tensor::Tensor factors_for(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device) {
  std::int64_t columns = 1;
  for (const model::Parameter& p : setup.eval.model_spec.table)
    if (p.fp8) columns = std::max(columns, p.cols());
  tensor::Tensor factors;
  comm::agree(all.host_comm,
              [&] { factors = tensor::Tensor(DType::f32, {columns}, device.type(), "factors of columns"); });
  return factors;
}

shard::ModelSpec probe_spec(const RecipeSetup& setup, Activity& activity, const View& factors) {
  shard::ModelSpec spec = setup.eval.model_spec;
  spec.store.fp8.column_factors = factors;
  spec.store.fp8_all_gather = false;  // the linears that run in FP8 change
  spec.execution.observer = &activity;
  return spec;
}

}  // namespace

Probe::Probe(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device, Activity& activity)
    : setup_(setup),
      all_(all),
      recipe_(*setup.config.precision.recipe_or_null()),
      factors_(factors_for(setup, all, device)),
      inspected_(setup, all, device, probe_spec(setup, activity, factors_.view()), nullptr),
      model_(*inspected_.model) {
  model_.store.scales().record_amaxes(false);
  model_.store.set_column_factors({});
  const hf::ModelConfig& c = model_.decoder.config();
  const std::int64_t rows = setup.shape.sequences * setup.shape.length;
  comm::agree(all.host_comm, [&] {
    no_tokens_ = tensor::Tensor(DType::i32, {1}, device.type(), "length of a sequence");
    std::int32_t none = 0;
    tensor::copy_across(model_.ctx, tensor::make_view(&none, DType::i32, device::DeviceType::host, {1}),
                        no_tokens_.view());
    inputs_ = tensor::Tensor(setup.config.precision.execution.activation,
                             {c.num_hidden_layers + 1, rows, c.hidden_size}, device.type(), "inputs of the layers");
  });
}

bool Probe::runs(int linear, const quant::GemmSet& gemm) const {
  const model::Parameter& p = table()[static_cast<std::size_t>(linear)];
  const bool selected = (gemm.forward && p.gemms.forward) || (gemm.dgrad && p.gemms.dgrad) ||
                        (gemm.wgrad && p.gemms.wgrad && p.trainable);
  return selected && (p.recipe != nullptr ? *p.recipe : recipe_).fp8_gemms(gemm) > 0;
}

double Probe::work_with(const std::vector<int>& linears) const {
  const double units = static_cast<double>(model_.decoder.units()) - 1;
  return (units - first_layer(linears.front())) / units * turns_of(linears);
}

// Sequences whose tokens are routed to the same expert on one of several ranks.
int Probe::turns_of(const std::vector<int>& linears) const {
  const comm::MeshShape& mesh = all_.mesh.shape();
  const bool experts = table()[static_cast<std::size_t>(linears.front())].expert >= 0;
  if (!experts || mesh.tp % mesh.ep == 0) return 1;  // those that share experts have rows of one sequence
  return mesh.ep % mesh.tp == 0 ? mesh.ep / mesh.tp : mesh.dp_shard;
}

void Probe::read_batch(std::int64_t number) {
  inspected_.read_batch(setup_, all_, number);
  const std::int64_t before = (setup_.config.step - 1 + number) * all_.mesh.data_parts();
  first_sequence_ = (before + all_.mesh.data_index()) * setup_.shape.sequences;
}

std::vector<double> Probe::losses() {
  select({}, kNone);
  return inspected_.sequence_losses([&](const Context& ctx, const model::Batch& batch, const View& losses) {
    model_.decoder.forward_and_store_inputs(ctx, model_.engine, model_.store, batch, inputs_.view(), losses);
  });
}

std::vector<double> Probe::losses_with(const std::vector<int>& linears) {
  select(linears, kForward);
  model_.store.set_column_factors(factors_.view());
  const std::int64_t length = setup_.shape.length;
  const int layer = first_layer(linears.front()), turns = turns_of(linears),
            own = all_.mesh.data_index() % all_.mesh.shape().dp_shard % turns;
  std::vector<double> losses;
  for (std::int64_t i = 0; i < setup_.shape.sequences; ++i)
    for (int turn = 0; turn < turns; ++turn) {
      draw_factors(first_sequence_ + (turn - own) * setup_.shape.sequences + i);
      const double loss =
          inspected_.sequence_loss(i, [&](const Context& ctx, const model::Batch& sequence, const View& each) {
            model::Batch routed = sequence;
            if (turn != own) routed.lengths = no_tokens_.view();
            model_.decoder.forward_from(ctx, model_.engine, model_.store, routed, layer,
                                        input_of(layer).rows(i * length, (i + 1) * length), each);
          });
      if (turn == own) losses.push_back(loss);
    }
  model_.store.set_column_factors({});
  return losses;
}

View Probe::input_of(int layer) const {
  const View& all = inputs_.view();
  return all.rows(layer, layer + 1).reshaped({all.shape[1], all.shape[2]});
}

// Factors 2^-u with u uniform in [0, 1), so that the place of a value between two powers of two is uniform too.
void Probe::draw_factors(std::int64_t sequence) {
  std::vector<float> factors(static_cast<std::size_t>(factors_.view().size()));
  for (std::size_t i = 0; i < factors.size(); ++i)
    factors[i] = std::exp2(-device::unit_interval(device::philox(static_cast<std::uint64_t>(sequence), i, 0)[0]));
  const View drawn = tensor::make_view(factors.data(), DType::f32, device::DeviceType::host, {factors_.view().size()});
  tensor::copy_across(model_.ctx, drawn, factors_.view());
}

void Probe::gradient() {
  compute({}, kNone);
  for (const shard::ParameterShard& o : model_.store.shards()) exact_.push_back(values_of(o));
}

std::vector<Products> Probe::gradient_with(const std::vector<int>& linears, const quant::GemmSet& gemm) {
  compute(linears, gemm);
  std::vector<Products> products(table().size());  // zero for experts of other ranks
  auto exact = exact_.begin();
  for (const shard::ParameterShard& o : model_.store.shards()) {
    const auto number = static_cast<std::size_t>(o.number);
    if (model_.store.layout().first_of_copies(table()[number])) products[number] = products_of(*exact, values_of(o));
    ++exact;
  }
  static_assert(sizeof(Products) == 4 * sizeof(double));
  all_.host_comm.all_reduce(std::span<double>(&products.front().exact, 4 * products.size()), comm::Reduce::sum);
  return products;
}

void Probe::select(const std::vector<int>& linears, const quant::GemmSet& gemm) {
  std::vector<quant::GemmSet> gemms(table().size(), kNone);
  for (const int linear : linears) gemms[static_cast<std::size_t>(linear)] = gemm;
  model_.store.set_gemms(gemms);
}

void Probe::compute(const std::vector<int>& linears, const quant::GemmSet& gemm) {
  select(linears, gemm);
  train::compute(*inspected_.env, *inspected_.batches, inspected_.totals, false);
}

std::vector<float> Probe::values_of(const shard::ParameterShard& o) const {
  return o.gradient.empty() || o.rows.count() == 0 ? std::vector<float>()
                                                   : tensor::to_host<float>(model_.ctx, o.gradient);
}

}  // namespace fp8::inspect
