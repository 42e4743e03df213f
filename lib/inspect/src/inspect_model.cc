#include "inspect_model.h"

#include <algorithm>

#include "fp8/cli/command.h"
#include "fp8/settings/checks.h"

namespace fp8::inspect {

namespace {

// Throws Error if the precision of linears is to change which can have only one.
void check_gemms_change(const settings::InspectConfig& config, const std::vector<model::Parameter>& table) {
  const auto codes = std::ranges::find_if(table, [](const model::Parameter& p) { return is_fp8(p.stored); });
  if (!config.sensitivity || codes == table.end()) return;
  throw Error(config.model + ": " + codes->name + ": stored as FP8 codes, which are not computed in bf16; " +
              cli::flag_name(config.recommend ? "recommend" : "sensitivity") + " needs the weights: fp8-quantize " +
              config.model + " --dequantize -o model.h5");
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
    const std::int64_t wanted = config.batch_size * all.host_comm.size();
    s.sampler.emplace(all.tokens, config.sampler, config.seed, s.eval.length, wanted, config.documents);
    if (s.sampler->samples() < wanted)
      throw Error(config.data + ": " + std::to_string(s.sampler->samples()) + " sequences of " +
                  std::to_string(s.eval.length) + " tokens, fewer than a batch of " + std::to_string(wanted) +
                  "; use a smaller " + cli::flag_name("batch-size") + " or " + cli::flag_name("seq-length"));
    s.shape = {config.batch_size, s.eval.length, s.sampler->bounds(config.batch_size)};
  });
  return s;
}

InspectedModel::InspectedModel(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device,
                               const shard::ModelSpec& spec, statistics::Collector* collector) {
  comm::Communicator& host_comm = all.host_comm;
  const settings::InspectConfig& config = setup.config;
  comm::agree(host_comm, [&] {
    const shard::MemoryPlan plan =
        shard::plan_memory(device.context(), device.device_comm(), spec, setup.shape, setup.shape);
    model.emplace(device.context(), device.device_comm(), spec, plan);
    if (collector != nullptr) collector->pause();
    scalars = device::Buffer(sizeof(train::StepScalars), device.type(), "scalars of a step");
    batches.emplace(1, config.batch_size, setup.eval.length, setup.sampler->separate());
    targets = batches->read(*setup.sampler, config.step - 1, host_comm.rank(), host_comm.size());
  });
  if (const auto damage = train::load_model(*model, host_comm, all.checkpoint, config.precision))
    throw comm::AgreedError(*damage);
  host_comm.all_reduce(std::span<std::int64_t>(&targets, 1), comm::Reduce::sum);
  if (targets == 0) throw comm::AgreedError(config.data + ": no token of the batch counts as a target");
  env.emplace(train::StepEnvironment{*model, host_comm, device.device_comm(), scalars, {}, collector});
  if (model->store.needs_calibration()) train::calibrate(*env, *batches, targets);
}

gemm::Counts InspectedModel::compute(const RecipeSetup& setup, const Inspection& all) {
  const train::Computed computed = train::compute_observed(*env, *batches, targets);
  const shard::ModelSpec& spec = setup.eval.model_spec;
  if (const quant::Recipe* recipe = setup.eval.precision.recipe_or_null()) {
    const gemm::Count planned = model::planned_fp8(
        spec.config, spec.table, *recipe, setup.shape.sequences * setup.shape.length, model->decoder.options(), true);
    train::check_planned(all.host_comm, computed.gemms, planned.gemms, "the batch");
  }
  return train::sum_over_ranks(all.host_comm, computed.gemms);
}

double InspectedModel::loss() const {
  double sum = train::read_scalars(*env).loss;
  env->host_comm.all_reduce(std::span<double>(&sum, 1), comm::Reduce::sum);
  return sum / static_cast<double>(targets);
}

}  // namespace fp8::inspect
