// Evaluation of a checkpoint: forward passes over all samples in file order.
#include "fp8/train/evaluate.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/clock.h"
#include "fp8/data/tokens.h"
#include "fp8/json/json.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/lora.h"
#include "fp8/settings/resume.h"
#include "fp8/state/run_folder.h"
#include "fp8/train/device_setup.h"
#include "fp8/train/model_setup.h"
#include "fp8/train/records.h"

namespace fp8::train {
namespace {

// This rank's sequence records of one round, one per line.
std::string sequence_records(std::int64_t first, std::int64_t count, std::int64_t length, const float* losses) {
  std::string lines;
  for (std::int64_t i = 0; i < count; ++i) {
    json::Array values(losses + i * length, losses + (i + 1) * length);
    lines +=
        json::dump(json::object({{"type", "sequence"}, {"index", first + i}, {"losses", std::move(values)}})) + "\n";
  }
  return lines;
}

void emit_lines(state::Journal& journal, const std::string& lines) {
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin);
    journal.emit(json::parse(std::string_view(lines).substr(begin, end - begin), "a rank's record"));
    begin = end + 1;
  }
}

// What the evaluations under all recipes share.
struct SharedSetup {
  const settings::EvalConfig& config;
  comm::Communicator& host_comm;
  state::Journal& journal;
  const ckpt::Checkpoint& checkpoint;
  const data::Sampler& sampler;
};

// The models to evaluate, one for each recipe, and the notes on all of them. Throws Error for settings that do not fit.
std::vector<ModelSetup> resolve_models(const settings::EvalConfig& config, const ckpt::Checkpoint& checkpoint,
                                       const data::TokenFile& tokens, std::vector<std::string>& notes) {
  std::vector<ModelSetup> setups;
  const auto add = [&](const std::string& note) {
    if (!note.empty() && std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  };
  std::vector<std::string> used;
  const settings::PrecisionConfig* fp8 = nullptr;
  const std::vector<std::string> recipes = settings::fitting_recipes(config, checkpoint, notes);
  setups.reserve(recipes.size());
  for (const std::string& recipe : recipes) {
    settings::EvalConfig one = config;
    one.precision = settings::precision_under(config.precision, config, recipe);
    ModelSetup& setup = setups.emplace_back(resolve_model(one, checkpoint, tokens));
    settings::check_some_fp8(setup.model_spec.table, setup.precision, false);
    setup.model_spec.store.training = false;
    for (const std::string& note : setup.notes) add(note);
    if (setup.precision.precision != settings::Precision::fp8) continue;
    if (fp8 == nullptr) fp8 = &setup.precision;
    for (const std::string& name : setup.precision.recipe_names())
      if (std::ranges::find(used, name) == used.end()) used.push_back(name);
  }
  add(settings::note_of_unused(fp8 != nullptr ? *fp8 : setups.front().precision, used));
  return setups;
}

// Evaluates one of the models. Collective.
void evaluate_model(const SharedSetup& e, const ModelSetup& setup, const DeviceSetup& device) {
  comm::Communicator& host_comm = e.host_comm;
  const EvaluationSize size{e.sampler.samples(), std::min(e.config.batch_size, e.sampler.samples()), setup.length};
  std::optional<shard::ShardedModel> model;
  const shard::BatchShape shape{size.batch, size.length, e.sampler.bounds(size.batch)};
  const shard::MemoryPlan plan = shard::plan_memory(device.context(), device.mesh(), setup.model_spec, shape, shape);
  comm::agree(host_comm, [&] { model.emplace(device.context(), device.mesh(), setup.model_spec, plan); });
  if (const auto damage = load_model(*model, host_comm, e.checkpoint, setup.precision))
    throw comm::AgreedError(*damage);
  const auto start = Clock::now();
  const EachSamples each = [&](std::int64_t first, std::int64_t count, const float* losses) {
    if (e.config.per_token) {
      for (const std::string& lines : host_comm.all_gather(sequence_records(first, count, size.length, losses)))
        emit_lines(e.journal, lines);
    }
    // Rank 0, which shows it, has the first samples of a round.
    const std::int64_t done = std::min(first + size.batch * device.mesh().data_parts(), size.samples);
    e.journal.progress(std::to_string(done) + "/" + std::to_string(size.samples) + " sequences", seconds_since(start),
                       done, size.samples - done);
  };
  const LossSum sum = evaluate_samples(
      *model, host_comm, e.sampler, size,
      planned_forward(setup.model_spec, plan.logit_bytes, setup.precision, model->store.stage()), each);
  if (sum.targets == 0)
    throw comm::AgreedError(e.config.data + ": no token of it counts as a target, so it has no loss");
  json::Value record = eval_record(-1, sum, setup.precision, device.type());
  record.as_object().set("documents", e.sampler.separate() ? "separate" : "joined");
  record.as_object().set("checkpoint", e.checkpoint.path());
  e.journal.emit(record);
  if (!std::isfinite(sum.loss)) {
    const settings::PrecisionConfig& p = setup.precision;
    const std::string in = p.recipe_or_null() == nullptr ? std::string(name_of(p.precision)) : p.recipe_text();
    e.journal.note(in + ": the loss is not finite");
  }
}

}  // namespace

void evaluate(const settings::EvalConfig& config, comm::Communicator& host_comm, const state::Hooks& hooks) {
  state::Journal journal(hooks, host_comm);
  std::optional<data::TokenFile> tokens;
  std::optional<data::Sampler> sampler;
  std::vector<ModelSetup> setups;
  std::vector<std::string> notes;
  json::Value shared;
  comm::agree(host_comm, [&] { tokens.emplace(config.data); });
  const ckpt::Checkpoint checkpoint = state::open_on_all_ranks(host_comm, config.model);
  comm::MeshShape shape;
  comm::agree(host_comm, [&] {
    settings::check_expert_parallel(config.ep, config.model, hf::parse_config(checkpoint.config(), checkpoint.path()));
    setups = resolve_models(config, checkpoint, *tokens, notes);
    shape = mesh_of(config, host_comm.size(), setups, {"fp8-eval", 1});  // the last batch may have one sequence
    sampler.emplace(*tokens, data::SamplerKind::sequential, 0, setups.front().length, 1, config.documents);
    for (std::string& note : settings::document_notes(*tokens, *sampler)) notes.push_back(std::move(note));
    shared = json::object({{"model", checkpoint.digest()}, {"data", tokens->digest()}});
  });
  settings::check_same_on_all_ranks(host_comm, shared);
  const comm::Mesh mesh(host_comm, shape);
  for (const std::string& message : checkpoint.passed_over()) journal.note(message);
  for (const std::string& note : notes)
    if (!note.empty()) journal.note(note);
  const SharedSetup evaluation{config, host_comm, journal, checkpoint, *sampler};
  for (ModelSetup& setup : setups) {
    const DeviceSetup device(config.device, setup.precision, mesh);
    shard::ModelSpec& spec = setup.model_spec;
    spec.store.stages = settings::layers_of_stages(
        config, settings::costs_of_units(spec.config, spec.table, setup.length, device.type()));
    if (!device.note().empty() && &setup == &setups.front()) journal.note(device.note());
    evaluate_model(evaluation, setup, device);
  }
  journal.rethrow();
}

}  // namespace fp8::train
