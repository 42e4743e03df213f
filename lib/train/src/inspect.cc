// Inspection of a checkpoint: one forward and backward pass for each recipe, observed by a Collector.
#include "fp8/train/inspect.h"

#include <algorithm>

#include "bisect.h"
#include "checks.h"
#include "fp8/base/file.h"
#include "fp8/inspect/records.h"
#include "fp8/json/json.h"
#include "fp8/model/quantize.h"
#include "fp8/model/record.h"
#include "fp8/train/flags.h"
#include "inspect_model.h"
#include "lora.h"
#include "observe.h"
#include "recommend.h"
#include "sensitivity.h"

namespace fp8::train {
namespace {

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

// The recipes of --recipe all that fit the checkpoint: only that of its FP8 codes, if it holds some, with a note.
std::vector<std::string> fitting_recipes(const InspectConfig& config, const ckpt::Checkpoint& checkpoint,
                                         std::vector<std::string>& notes) {
  const auto table = model::parameter_table(hf::parse_config(checkpoint.config(), checkpoint.path()));
  if (!config.all_recipes || !model::stored_scaling(checkpoint, table)) return config.recipes;
  PrecisionConfig of_codes = config.precision;
  of_codes.recipe_given = false;
  resolve_codes(of_codes, checkpoint, table);
  std::string others;
  for (const std::string& name : config.recipes)
    if (name != of_codes.recipe) others += (others.empty() ? "" : ", ") + name;
  notes.push_back(flag_name("recipe") + " all: inspects " + of_codes.recipe + " alone, to which the FP8 codes of " +
                  checkpoint.path() + " belong; leaves out " + others);
  return {of_codes.recipe};
}

// The notes of a bisection: those on the data, and the flags of each side that have no effect on it. Throws Error for a
// side that contradicts itself or does not fit the checkpoint.
std::vector<std::string> notes_of_sides(const InspectConfig& config, const ckpt::Checkpoint& checkpoint,
                                        const data::TokenFile& tokens) {
  std::vector<std::string> notes, unused;
  for (const auto& [flag, side] : {std::pair("bisect", &config.bisection->a), {"against", &config.bisection->b}}) {
    EvalConfig one = config;
    one.precision = side->precision;
    EvalSetup setup = resolve(one, checkpoint, tokens);
    const std::string note = note_of_unused(setup.precision, {setup.precision.recipe});
    if (!note.empty()) unused.push_back(flag_name(flag) + ": " + note);
    notes = std::move(setup.notes);  // the same of both
  }
  notes.insert(notes.end(), unused.begin(), unused.end());
  return notes;
}

// Throws Error if the recommendation cannot be written, or would replace a file that is read.
void check_recommendation(const InspectConfig& config, const ckpt::Checkpoint& checkpoint) {
  check_not_input(config.output, config.data);
  check_not_input(config.output, checkpoint.path() + "/manifest.json");
  for (std::size_t i = 0; i < checkpoint.file_count(); ++i) check_not_input(config.output, checkpoint.file_path(i));
  check_output(config.output, config.force);
}

// The statistics of one pass in the recipe. Collective.
void measure_operands(const RecipeSetup& setup, const Inspection& all, const DeviceSetup& device) {
  const InspectConfig& config = setup.config;
  const std::vector<model::Parameter>& table = setup.eval.model_spec.table;
  const bool codes = std::ranges::any_of(table, [](const model::Parameter& p) { return is_fp8(p.stored); });
  if (codes && device.type() != device::DeviceType::host)
    throw comm::AgreedError(config.model +
                            ": holds FP8 codes, which are inspected on a CPU only: " + flag_name("device") + " cpu");
  inspect::Collector collector(all.host_comm, device.device_comm(),
                               {observed_linears(table, config.layers), config.blocks, true});
  ModelSpec spec = setup.eval.model_spec;
  spec.store.fp8.observer = &collector;
  InspectedModel inspected(setup, all, device, spec, &collector);
  const gemm::Counts gemms = inspected.compute(setup, all);
  const inspect::Results results = collector.end();
  const LossSum sum{inspected.loss() * static_cast<double>(inspected.targets), inspected.targets, gemms};
  all.journal.emit(inspect_record(config, *setup.sampler, sum, device.type()));
  for (const json::Value& record : records_of(results, config.precision.recipe, linear_names(table)))
    all.journal.emit(record);
}

// Everything about one recipe. Collective. Returns whether something is left for FP8.
bool inspect_recipe(const InspectConfig& config, const Inspection& all) {
  const RecipeSetup setup = resolve(config, all);
  comm::agree(all.host_comm, [&] { observed_linears(setup.eval.model_spec.table, config.layers); });
  const DeviceSetup device(config.device, setup.config.precision, all.host_comm);
  all.journal.progress(setup.config.precision.recipe);
  measure_operands(setup, all, device);
  if (!config.sensitivity) return true;
  const LossChanges measured = measure_sensitivity(setup, all, device);
  return !config.recommend || recommend(setup, all, device, measured);
}

}  // namespace

Exit inspect_checkpoint(const InspectConfig& config, comm::Communicator& host_comm, const Hooks& hooks) {
  Journal journal(hooks, host_comm);
  std::optional<data::TokenFile> tokens;
  std::optional<ckpt::Checkpoint> checkpoint;
  json::Value shared;
  std::vector<std::string> notes, recipes;
  comm::agree(host_comm, [&] {
    tokens.emplace(config.data);
    checkpoint.emplace(model::open_checkpoint(config.model));
    if (config.recommend && host_comm.rank() == 0) check_recommendation(config, *checkpoint);
    shared = json::object({{"model", checkpoint->digest()}, {"data", tokens->digest()}});
    recipes = fitting_recipes(config, *checkpoint, notes);
    if (config.bisection) {
      notes = notes_of_sides(config, *checkpoint, *tokens);
      return;
    }
    EvalConfig first = config;
    first.precision.recipe = recipes.front();
    const EvalSetup setup = resolve(first, *checkpoint, *tokens);
    notes.insert(notes.end(), setup.notes.begin(), setup.notes.end());
    notes.push_back(
        note_of_unused(setup.precision, recipes.size() > 1 ? recipes : std::vector{setup.precision.recipe}));
  });
  check_same_on_all_ranks(host_comm, shared);
  for (const std::string& note : notes)
    if (!note.empty()) journal.note(note);
  const Inspection all{host_comm, journal, *checkpoint, *tokens};
  bool left = !config.bisection || bisect(config, all);
  for (const std::string& recipe : config.bisection ? std::vector<std::string>() : recipes) {
    InspectConfig one = config;
    one.precision.recipe = recipe;
    left = inspect_recipe(one, all);
  }
  journal.rethrow();
  return left ? Exit::done : Exit::no;
}

}  // namespace fp8::train
