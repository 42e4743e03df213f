#include "inspect_model.h"

#include <algorithm>

#include "fp8/base/target.h"
#include "fp8/cli/command.h"
#include "fp8/settings/checks.h"

namespace fp8::inspect {

namespace {

// Throws Error if the precision of linears is to change which can have only one.
void check_gemms_change(const settings::InspectConfig& config, const std::vector<model::Parameter>& table) {
  const auto codes = std::ranges::find_if(table, [](const model::Parameter& p) { return is_coded(p.stored); });
  const bool plain = config.routes == settings::kPlainRecipe || config.routes == settings::kExactRecipe;
  const char* const flag = config.recommend ? "recommend" : config.sensitivity ? "sensitivity" : "routes";
  if ((!config.sensitivity && !config.recommend && !plain) || codes == table.end()) return;
  throw Error(config.model + ": " + codes->name + ": stored as codes, which are not computed in bf16; " +
              cli::flag_name(flag) + " needs the weights: fp8-quantize " + config.model + " --dequantize -o model.h5");
}

// Throws Error if the file has fewer sequences than the batches, each with `wanted`.
void check_enough(const settings::InspectConfig& config, const RecipeSetup& s, std::int64_t wanted) {
  const std::int64_t samples = s.sampler->samples();
  if (samples / wanted >= config.batches) return;
  const bool one = config.batches == 1;
  throw Error(config.data + ": " + std::to_string(samples) + " sequences of " + std::to_string(s.eval.length) +
              " tokens, fewer than " + (one ? "a batch" : std::to_string(config.batches) + " batches") + " of " +
              std::to_string(wanted) + "; use a smaller " + (one ? "" : cli::flag_name("batches") + ", ") +
              cli::flag_name("batch-size") + " or " + cli::flag_name("seq-length"));
}

// Throws Error if a standard error is needed and there is only one sequence.
void check_sequences(const settings::InspectConfig& config, std::int64_t wanted) {
  if (config.recommend && wanted * config.batches < 2)
    throw Error(cli::flag_name("recommend") + ": one sequence has no standard error; use a larger " +
                cli::flag_name("batch-size") + " or " + cli::flag_name("batches"));
}

// The losses of the sequences of a batch under `forward`, each summed over its targets.
std::vector<double> sums_of(const Context& ctx, const model::Batch& batch, const Forward& forward) {
  const View losses = tensor::allocate(ctx, DType::f32, {batch.rows()}, "activations");
  forward(ctx, batch, losses);
  const std::vector<float> values = tensor::to_host<float>(ctx, losses);
  std::vector<double> sums(static_cast<std::size_t>(batch.sequences), 0);
  for (std::size_t i = 0; i < values.size(); ++i)
    sums[i / static_cast<std::size_t>(batch.length)] += static_cast<double>(values[i]);
  return sums;
}

}  // namespace

RecipeSetup resolve(const settings::InspectConfig& config, const Inspection& all) {
  RecipeSetup s{config, {}, {}, {}};
  comm::agree(all.host_comm, [&] {
    s.eval = train::resolve_model(config, all.checkpoint, all.tokens);
    s.config.precision = s.eval.precision;
    settings::check_some_fp8(s.eval.model_spec.table, s.config.precision, true);
    check_gemms_change(config, s.eval.model_spec.table);
    s.eval.model_spec.store.updates = false;
    const std::int64_t wanted = config.batch_size * all.mesh.data_parts();
    s.sampler.emplace(all.tokens, config.sampler, config.seed, s.eval.length, wanted, config.documents);
    check_enough(config, s, wanted);
    check_sequences(config, wanted);
    s.shape = {config.batch_size, s.eval.length, s.sampler->bounds(config.batch_size)};
  });
  return s;
}

InspectedModel::InspectedModel(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device,
                               const shard::ModelSpec& spec, statistics::Collector* collector) {
  comm::Communicator& host_comm = all.host_comm;
  const settings::InspectConfig& config = setup.config;
  const shard::MemoryPlan plan = shard::plan_memory(device.context(), device.mesh(), spec, setup.shape, setup.shape);
  comm::agree(host_comm, [&] {
    model.emplace(device.context(), device.mesh(), spec, plan);
    if (collector != nullptr) collector->pause();
    scalars = device::Buffer(sizeof(train::StepScalars), device.type(), "scalars of a step");
    batches.emplace(1, config.batch_size, setup.eval.length, setup.sampler->separate());
    totals.targets =
        batches->read(*setup.sampler, config.step - 1, device.mesh().data_index(), device.mesh().data_parts());
    totals.tokens = batches->tokens();
  });
  if (const auto damage = train::load_model(*model, host_comm, all.checkpoint, config.precision))
    throw comm::AgreedError(*damage);
  if (!device.mesh().counts_samples()) totals = {};
  for (std::int64_t* sum : {&totals.targets, &totals.tokens})
    host_comm.all_reduce(std::span<std::int64_t>(sum, 1), comm::Reduce::sum);
  if (totals.targets == 0) throw comm::AgreedError(config.data + ": no token of the batch counts as a target");
  env.emplace(train::StepEnvironment{*model, host_comm, scalars, {}, collector});
  if (model->store.scales().needs_calibration()) train::calibrate(*env, *batches, totals);
}

gemm::Counts InspectedModel::compute(const RecipeSetup& setup, const Inspection& all) {
  const train::Computed computed = train::compute_observed(*env, *batches, totals);
  const shard::ModelSpec& spec = setup.eval.model_spec;
  if (const quant::Recipe* recipe = setup.eval.precision.recipe_or_null()) {
    const gemm::Count planned = model::planned_fp8(
        spec.config, spec.table, *recipe, setup.shape.sequences * setup.shape.length, model->decoder.execution(), true);
    train::check_planned(all.host_comm, computed.gemms, planned.gemms + train::planned_experts(*model), "the batch");
  }
  return train::sum_over_ranks(all.host_comm, computed.gemms);
}

void InspectedModel::read_batch(const RecipeSetup& setup, const Inspection& all, std::int64_t number) {
  const comm::Mesh& mesh = model->store.mesh();
  comm::agree(all.host_comm, [&] {
    batches->read(*setup.sampler, setup.config.step - 1 + number, mesh.data_index(), mesh.data_parts());
  });
}

std::vector<double> InspectedModel::sequence_losses(const Forward& forward) {
  const Context& ctx = model->ctx;
  const device::Scope scope(*ctx.arena);
  const model::Batch batch = batches->batch(ctx, 0);
  if (forward) return sums_of(ctx, batch, forward);
  return sums_of(ctx, batch, [&](const Context& at, const model::Batch& all, const View& losses) {
    model->decoder.forward(at, model->engine, model->store, all, losses);
  });
}

double InspectedModel::sequence_loss(std::int64_t number, const Forward& forward) {
  const Context& ctx = model->ctx;
  const device::Scope scope(*ctx.arena);
  model::Batch batch = batches->batch(ctx, 0);
  batch.tokens = batch.tokens.rows(number, number + 1);
  batch.targets = batch.targets.rows(number, number + 1);
  batch.sequences = 1;
  if (!batch.lengths.empty()) batch.lengths = batch.lengths.rows(number, number + 1);
  ops::Documents& documents = batch.documents;  // the counts stay, which are maxima
  if (!documents.start.empty()) documents.start = documents.start.rows(number, number + 1);
  documents.pairs = 0;
  return sums_of(ctx, batch, forward).front();
}

std::vector<std::int64_t> InspectedModel::sequence_targets() {
  const Context& ctx = model->ctx;
  const device::Scope scope(*ctx.arena);
  const model::Batch batch = batches->batch(ctx, 0);
  const std::vector<std::int32_t> ids = tensor::to_host<std::int32_t>(ctx, batch.targets);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(batch.sequences), 0);
  for (std::size_t i = 0; i < ids.size() && model->store.mesh().counts_samples(); ++i)
    counts[i / static_cast<std::size_t>(batch.length)] += ids[i] == kIgnoredTarget ? 0 : 1;
  return counts;
}

double InspectedModel::loss() const {
  double sum = train::read_scalars(*env).loss;
  env->host_comm.all_reduce(std::span<double>(&sum, 1), comm::Reduce::sum);
  return sum / static_cast<double>(totals.targets);
}

}  // namespace fp8::inspect
