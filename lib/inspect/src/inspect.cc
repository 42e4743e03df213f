// Inspection of a checkpoint: one forward and backward pass for each recipe, observed by a Collector.
#include "fp8/inspect/inspect.h"

#include <algorithm>
#include <cmath>

#include "activity.h"
#include "bisect.h"
#include "fp8/base/file.h"
#include "fp8/cli/command.h"
#include "fp8/convert/quantize.h"
#include "fp8/json/json.h"
#include "fp8/linear/linear.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/lora.h"
#include "fp8/settings/resume.h"
#include "fp8/state/run_folder.h"
#include "fp8/statistics/records.h"
#include "fp8/train/observe.h"
#include "inspect_model.h"
#include "recommend.h"
#include "routes.h"
#include "sensitivity.h"

namespace fp8::inspect {
namespace {

json::Value inspect_record(const settings::InspectConfig& config, const data::Sampler& sampler,
                           const train::LossSum& sum, device::DeviceType device) {
  json::Value record = train::eval_record(-1, sum, config.precision, device);
  json::Object& o = record.as_object();
  o.set("type", "inspect");
  o.set("batch_size", config.batch_size);
  o.set("seq_length", sampler.tokens_per_sample());
  o.set("documents", sampler.separate() ? "separate" : "joined");
  o.set("step", config.step);
  return record;
}

// What is computed under a recipe, or, in a bisection, on a side.
struct Models {
  std::vector<std::string> recipes;       // none in a bisection
  std::vector<train::ModelSetup> setups;  // of the recipes or sides, then of the recipe of --routes
  std::vector<std::string> notes;         // some may be empty
};

train::ModelSetup resolve_in(const settings::PrecisionConfig& precision, const settings::InspectConfig& config,
                             const ckpt::Checkpoint& checkpoint, const data::TokenFile& tokens) {
  settings::EvalConfig one = config;
  one.precision = precision;
  return train::resolve_model(one, checkpoint, tokens);
}

// The sides of a bisection, with notes on the data, and the flags of each side that have no effect on it. Throws Error
// for a side that contradicts itself or does not fit the checkpoint.
Models resolve_sides(const settings::InspectConfig& config, const ckpt::Checkpoint& checkpoint,
                     const data::TokenFile& tokens) {
  Models models;
  std::vector<std::string> unused;
  for (const auto& [flag, side] : {std::pair("bisect", &config.bisection->a), {"against", &config.bisection->b}}) {
    const train::ModelSetup& setup =
        models.setups.emplace_back(resolve_in(side->precision, config, checkpoint, tokens));
    const std::string note = settings::note_of_unused(setup.precision, setup.precision.recipe_names());
    if (!note.empty()) unused.push_back(cli::flag_name(flag) + ": " + note);
    models.notes = setup.notes;  // the same of both
  }
  models.notes.insert(models.notes.end(), unused.begin(), unused.end());
  return models;
}

// The models of an inspection. Throws Error for settings that do not fit the checkpoint.
Models resolve_models(const settings::InspectConfig& config, const ckpt::Checkpoint& checkpoint,
                      const data::TokenFile& tokens) {
  if (config.bisection) return resolve_sides(config, checkpoint, tokens);
  Models models;
  models.recipes = settings::fitting_recipes(config, checkpoint, models.notes);
  for (const std::string& recipe : models.recipes)
    models.setups.push_back(
        resolve_in(settings::precision_under(config.precision, config, recipe), config, checkpoint, tokens));
  const train::ModelSetup& first = models.setups.front();
  models.notes.insert(models.notes.end(), first.notes.begin(), first.notes.end());
  std::vector<std::string> used = first.precision.recipe_names();
  used.insert(used.end(), models.recipes.begin() + 1, models.recipes.end());
  models.notes.push_back(settings::note_of_unused(first.precision, used));
  if (config.routes.empty()) return models;
  const settings::PrecisionConfig reference = settings::precision_of_routes(config);
  if (reference.precision == settings::Precision::fp8)  // what divides a model under FP8 divides it in bf16 too
    models.setups.push_back(resolve_in(reference, config, checkpoint, tokens));
  return models;
}

// Throws Error if the recommendation cannot be written, or would replace a file that is read.
void check_recommendation(const settings::InspectConfig& config, const ckpt::Checkpoint& checkpoint) {
  check_output(config.output, config.force, {config.data, checkpoint.path()});
}

// Throws Error for what needs experts, or a model without them.
void check_experts(const settings::InspectConfig& config, const ckpt::Checkpoint& checkpoint) {
  const bool any = hf::parse_config(checkpoint.config(), checkpoint.path()).sparse_layers() > 0;
  if (any && config.bisection)
    throw Error(
        config.model + ": has experts, whose rows are of other tokens where A and B route differently, so that " +
        cli::flag_name("bisect") + " cannot compare them; " + cli::flag_name("routes") + " compares the routes");
  if (!any && !config.routes.empty()) throw Error(cli::flag_name("routes") + ": " + config.model + " has no experts");
}

// Throws Error for parts of experts of a model that has none, and for a bisection where a result is a term of a sum
// over ranks.
void check_mesh(const settings::InspectConfig& c, const ckpt::Checkpoint& checkpoint) {
  settings::check_expert_parallel(c.ep, c.model, hf::parse_config(checkpoint.config(), checkpoint.path()));
  if (c.bisection && c.tp > 1) throw Error(cli::flag_name("bisect") + ": not with " + cli::flag_name("tp"));
}

train::MeshUse mesh_use(const settings::InspectConfig& c) {
  const bool alone = c.sensitivity || c.recommend;  // each sequence is computed alone
  return {"fp8-inspect", alone ? 1 : c.batch_size, true, false};
}

// The amaxes of all ranks, through the communicator of the device.
class RankAmaxes final : public linear::AmaxReducer {
 public:
  explicit RankAmaxes(comm::Communicator& device_comm) : device_comm_(device_comm) {}
  void reduce(const Context& ctx, const View& amax) const override {
    if (ctx.dry) return;
    device_comm_.all_reduce(std::span<float>(amax.as<float>(), 1), comm::Reduce::amax);
  }

 private:
  comm::Communicator& device_comm_;
};

// The statistics of one pass in the recipe, and its routes against those of the reference unless that is null.
// Collective.
void measure_operands(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device,
                      const ChosenExperts* reference) {
  const settings::InspectConfig& config = setup.config;
  const std::vector<model::Parameter>& table = setup.eval.model_spec.table;
  const bool codes = std::ranges::any_of(table, [](const model::Parameter& p) { return is_coded(p.stored); });
  if (codes && device.type() != device::DeviceType::host)
    throw comm::AgreedError(config.model +
                            ": holds codes, which are inspected on a CPU only: " + cli::flag_name("device") + " cpu");
  statistics::Collector collector(all.mesh, train::collector_options(table, config.layers, config.blocks));
  shard::ModelSpec spec = setup.eval.model_spec;
  spec.store.fp8.observer = &collector;
  Activity activity(all.journal, static_cast<int>(spec.config.num_hidden_layers));
  activity.begin(config.precision.recipe_text());
  spec.execution.observer = &activity;
  const RankAmaxes amaxes(device.mesh().all());
  if (all.host_comm.size() > 1) spec.store.fp8.amax_reducer = &amaxes;
  InspectedModel inspected(setup, all, device, spec, &collector);
  const gemm::Counts gemms = inspected.compute(setup, all);
  const statistics::Results results = collector.end();
  const train::LossSum sum{inspected.loss() * static_cast<double>(inspected.totals.targets), inspected.totals.targets,
                           gemms};
  all.journal.emit(inspect_record(config, *setup.sampler, sum, device.type()));
  if (!std::isfinite(sum.loss)) all.journal.note(config.precision.recipe_text() + ": the loss is not finite");
  for (const json::Value& record : records_of(results, config.precision.recipe_text(), train::linear_names(table)))
    all.journal.emit(record);
  if (reference != nullptr)
    emit_routes(*reference, chosen_experts(inspected), config, config.precision.recipe_text(), all);
}

// Everything about one recipe; the first that compares routes computes those of the reference. Collective. Returns
// whether something is left for FP8.
bool inspect_recipe(const settings::InspectConfig& config, const Inspection& all,
                    std::optional<ChosenExperts>& reference) {
  const RecipeSetup setup = resolve(config, all);
  comm::agree(all.host_comm, [&] { train::observed_linears(setup.eval.model_spec.table, config.layers); });
  const train::DeviceSetup device(config.device, setup.config.precision, all.mesh);
  if (!config.routes.empty() && !reference) reference = chosen_for_reference(config, all);
  measure_operands(setup, all, device, reference ? &*reference : nullptr);
  if (!config.sensitivity && !config.recommend) return true;
  const LossChanges measured = measure_sensitivity(setup, all, device);
  return !config.recommend || recommend(setup, all, device, measured);
}

}  // namespace

Exit inspect_checkpoint(const settings::InspectConfig& config, comm::Communicator& host_comm,
                        const state::Hooks& hooks) {
  state::Journal journal(hooks, host_comm);
  std::optional<data::TokenFile> tokens;
  json::Value shared;
  Models models;
  comm::MeshShape shape;
  comm::agree(host_comm, [&] { tokens.emplace(config.data); });
  const ckpt::Checkpoint checkpoint = state::open_on_all_ranks(host_comm, config.model);
  comm::agree(host_comm, [&] {
    if (config.recommend && comm::is_writer(host_comm)) check_recommendation(config, checkpoint);
    shared = json::object({{"model", checkpoint.digest()}, {"data", tokens->digest()}});
    check_experts(config, checkpoint);
    check_mesh(config, checkpoint);
    models = resolve_models(config, checkpoint, *tokens);
    shape = train::mesh_of(config, host_comm.size(), models.setups, mesh_use(config));
  });
  settings::check_same_on_all_ranks(host_comm, shared);
  const comm::Mesh mesh(host_comm, shape);
  for (const std::string& message : checkpoint.passed_over()) journal.note(message);
  for (const std::string& note : models.notes)
    if (!note.empty()) journal.note(note);
  const Inspection all{host_comm, mesh, journal, checkpoint, *tokens};
  bool left = !config.bisection || bisect(config, all);
  std::optional<ChosenExperts> reference;
  for (const std::string& recipe : models.recipes) {
    settings::InspectConfig one = config;
    one.precision = settings::precision_under(config.precision, config, recipe);
    left = inspect_recipe(one, all, reference);
  }
  journal.rethrow();
  return left ? Exit::done : Exit::no;
}

}  // namespace fp8::inspect
