// Inspection of a checkpoint: one forward and backward pass for each recipe, observed by a Collector.
#include "fp8/train/inspect.h"

#include <algorithm>

#include "checks.h"
#include "device_setup.h"
#include "eval_setup.h"
#include "fp8/base/text.h"
#include "fp8/inspect/records.h"
#include "fp8/json/json.h"
#include "fp8/model/record.h"
#include "fp8/train/flags.h"
#include "observe.h"
#include "records.h"

namespace fp8::train {
namespace {

// What all recipes share. References outlive it.
struct Inspection {
  comm::Communicator& host_comm;
  Journal& journal;
  const ckpt::Checkpoint& checkpoint;
  const data::TokenFile& tokens;
};

// The batch of one rank.
struct Batch {
  data::Sampler sampler;
  BatchShape shape;
};

Batch batch_of(const InspectConfig& config, const Inspection& all, std::int64_t length) {
  const std::int64_t ranks = all.host_comm.size();
  data::Sampler sampler(all.tokens, config.sampler, config.seed, length, config.batch_size * ranks, config.documents);
  if (sampler.samples() < config.batch_size * ranks)
    throw Error(config.data + ": " + std::to_string(sampler.samples()) + " sequences of " + std::to_string(length) +
                " tokens, fewer than a batch of " + std::to_string(config.batch_size * ranks) + "; use a smaller " +
                flag_name("batch-size") + " or " + flag_name("seq-length"));
  const BatchShape shape{config.batch_size, length, sampler.bounds(config.batch_size)};
  return {std::move(sampler), shape};
}

json::Value inspect_record(const InspectConfig& config, const data::Sampler& sampler, const LossSum& sum,
                           device::DeviceType device) {
  json::Value record = eval_record(-1, sum, config.precision, device);
  json::Object& o = record.as_object();
  o.set("type", "inspect");
  o.set("batch_size", config.batch_size);
  o.set("seq_length", sampler.tokens_per_sample());
  o.set("documents", sampler.separate() ? "separate" : "joined");
  o.set("step", config.step);
  return record;
}

// The pass in the recipe of `config`. Collective.
void inspect_recipe(const InspectConfig& config, const Inspection& all) {
  comm::Communicator& host_comm = all.host_comm;
  EvalSetup setup;
  std::optional<Batch> batch;
  comm::agree(host_comm, [&] {
    setup = resolve(config, all.checkpoint, all.tokens);
    setup.model_spec.store.updates = false;
    batch.emplace(batch_of(config, all, setup.length));
  });
  const DeviceSetup device(config.device, config.precision, host_comm);
  const std::vector<model::Parameter>& table = setup.model_spec.table;
  std::optional<inspect::Collector> collector;
  std::optional<ShardedModel> model;
  std::optional<MicroBatches> batches;
  std::int64_t targets = 0;
  comm::agree(host_comm, [&] {
    collector.emplace(host_comm, device.device_comm(),
                      inspect::CollectorOptions{observed_linears(table, config.layers), config.blocks, true});
    setup.model_spec.store.fp8.observer = &*collector;
    const MemoryPlan plan =
        plan_memory(device.context(), device.device_comm(), setup.model_spec, batch->shape, batch->shape);
    model.emplace(device.context(), device.device_comm(), setup.model_spec, plan.allocate(device.type()));
    collector->pause();
    batches.emplace(1, config.batch_size, setup.length, batch->sampler.separate());
    targets = batches->read(batch->sampler, config.step - 1, host_comm.rank() * config.batch_size);
  });
  all.journal.progress(config.precision.recipe);
  if (const auto damage = load(*model, host_comm, all.checkpoint, false)) throw comm::AgreedError(*damage);
  if (!has_scales_of(all.checkpoint, config.precision)) model->store.require_calibration();
  host_comm.all_reduce(std::span<std::int64_t>(&targets, 1), comm::Reduce::sum);
  if (targets == 0) throw comm::AgreedError(config.data + ": no token of the batch counts as a target");
  const device::Buffer scalars(sizeof(StepScalars), device.type(), "scalars of a step");
  const RunConfig unused;
  StepEnvironment env{*model, host_comm, device.device_comm(), scalars, unused, &*collector};
  if (model->store.needs_calibration()) calibrate(env, *batches, targets);
  const Computed computed = compute_observed(env, *batches, targets);
  const inspect::Results results = collector->end();
  LossSum sum{read_scalars(env).loss, targets, computed.gemms};
  host_comm.all_reduce(std::span<double>(&sum.loss, 1), comm::Reduce::sum);
  const gemm::Count planned = model::planned_fp8(setup.model_spec.config, table, *config.precision.recipe_or_null(),
                                                 batch->shape.sequences * setup.length, model::Recompute::none,
                                                 config.precision.activations, true);
  check_planned(host_comm, computed.gemms, planned.gemms, "the batch");
  all.journal.emit(inspect_record(config, batch->sampler, sum, device.type()));
  for (const json::Value& record : records_of(results, config.precision.recipe, linear_names(table)))
    all.journal.emit(record);
}

}  // namespace

void inspect_checkpoint(const InspectConfig& config, comm::Communicator& host_comm, const Hooks& hooks) {
  Journal journal(hooks, host_comm);
  std::optional<data::TokenFile> tokens;
  std::optional<ckpt::Checkpoint> checkpoint;
  json::Value shared;
  std::vector<std::string> notes;
  comm::agree(host_comm, [&] {
    if (config.blocks && host_comm.size() > 1) throw Error(flag_name("blocks") + ": needs one rank");
    tokens.emplace(config.data);
    checkpoint.emplace(model::open_checkpoint(config.model));
    shared = json::object({{"model", checkpoint->digest()}, {"data", tokens->digest()}});
    notes = resolve(config, *checkpoint, *tokens).notes;
  });
  check_same_on_all_ranks(host_comm, shared);
  for (const std::string& note : notes)
    if (!note.empty()) journal.note(note);
  for (const std::string& recipe : config.recipes) {
    InspectConfig one = config;
    one.precision.recipe = recipe;
    inspect_recipe(one, {host_comm, journal, *checkpoint, *tokens});
  }
  journal.rethrow();
}

}  // namespace fp8::train
