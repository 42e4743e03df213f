// Resolving the settings of a run.
#include "run_setup.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/data/sampler.h"
#include "fp8/json/json.h"
#include "fp8/json/sizes.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/mesh.h"
#include "fp8/train/device_setup.h"
#include "fp8/train/records.h"
#include "run_template.h"

namespace fp8::train {
namespace {

constexpr std::string_view kMesh = "mesh";  // name among the changes

// Number of steps, warmup and length of the schedule. Epochs are those of the samples from `base` on.
void resolve_steps(settings::RunConfig& c, std::int64_t samples, std::int64_t global_batch,
                   const ckpt::PositionBase& base) {
  if (c.steps == 0 && c.epochs > 0) {
    const double left = c.epochs * static_cast<double>(samples) - static_cast<double>(base.sample);
    c.steps = base.step + std::max<std::int64_t>(1, std::llround(left / static_cast<double>(global_batch)));
  }
  if (c.steps == 0) throw Error(cli::flag_name("steps") + ": needed (or " + cli::flag_name("epochs") + ")");
  if (c.profile_last > c.steps)
    throw Error(cli::flag_name("profile") + ": the run has only " + std::to_string(c.steps) + " steps");
  c.schedule.steps = c.schedule_steps > 0 ? c.schedule_steps : c.steps;
  if (c.warmup_ratio > 0) c.schedule.warmup = std::llround(c.warmup_ratio * static_cast<double>(c.steps));
  if (c.schedule_steps > 0 && c.schedule_steps < c.schedule.warmup)
    throw Error(cli::flag_name("schedule-steps") + ": less than the steps of warmup");
  if (c.schedule.kind == optim::ScheduleKind::wsd && c.schedule.decay_steps > c.schedule.steps - c.schedule.warmup)
    throw Error(cli::flag_name("decay-steps") + ": more than the steps after warmup");
}

bool changed(const RunSetup& s, std::initializer_list<std::string_view> names) {
  return std::any_of(s.changes.begin(), s.changes.end(), [&](const settings::SettingChange& c) {
    return std::find(names.begin(), names.end(), c.name) != names.end();
  });
}

// The position in the samples after a change: the samples seen so far with another batch, the first one with other data
// or another order. `before`: the settings of checkpoint `c`.
void move_base(RunSetup& s, const json::Object& before, const std::string& what) {
  Position& at = s.position;
  const json::Object& now = s.settings.as_object();
  const std::int64_t batch = before.get_int(settings::kGlobalBatch, what), length = before.get_int("seq-length", what);
  const std::int64_t steps = at.step - at.base.step, tokens = at.tokens - at.base.tokens;
  const std::int64_t each = checked_mul(batch, length, what);
  if (steps > 0 && tokens / steps != each)
    throw Error(what + ": " + std::to_string(tokens) + " tokens in " + std::to_string(steps) + " steps, which have " +
                std::to_string(each) + " each");
  if (changed(s, {"data", "seq-length", "sampler", "seed", "documents"})) {
    at.base = {at.step, at.tokens, 0};
  } else if (now.at(settings::kGlobalBatch) != before.at(settings::kGlobalBatch)) {
    at.base = {at.step, at.tokens, checked_add(at.base.sample, checked_mul(steps, batch, what), what)};
  }
}

// Adds precision, recipe and how FP8 is computed to the changes, where they are not those of the checkpoint, or, if it
// was computed without FP8, not the recipe's defaults.
void note_phase(RunSetup& s, const ckpt::Checkpoint& c) {
  const json::Value* phase = settings::recorded_phase(c);
  if (phase == nullptr) return;
  settings::PrecisionConfig defaults;
  defaults.precision = s.config.precision.precision;
  defaults.recipe = s.config.precision.recipe;
  defaults.linear_recipes = s.config.precision.linear_recipes;
  const json::Value now = settings::phase_of(s.config.precision), usual = settings::phase_of(defaults);
  for (const auto& [name, value] : now.as_object()) {
    const json::Value* old = phase->as_object().find(name);
    const json::Value* before = old != nullptr ? old : usual.as_object().find(name);
    if (before == nullptr || *before != value)
      s.changes.push_back({name, old != nullptr ? *old : json::Value(), value});
  }
}

// Adds the mesh to the changes, if it is not that of the checkpoint.
void note_mesh(RunSetup& s, const json::Value& before, const json::Value& now) {
  if (!before.is_object() || before == now) return;
  const auto text = [](const json::Value& mesh) {
    const std::string sizes = json::sizes_text(mesh.as_object());
    return sizes.empty() ? "1 rank" : sizes;
  };
  s.changes.push_back({std::string(kMesh), text(before), text(now)});
}

// The changes in one line: "from step 11 on: lr 0.0003 (was 0.001), clip 0.5 (was 1.0)"; empty if there are none.
std::string note_of_changes(const RunSetup& s) {
  std::string text;
  const auto shown = [](const json::Value& v) {
    return v.is_null() ? std::string("not set") : v.is_string() ? excerpt(v.as_string()) : json::dump(v);
  };
  for (const settings::SettingChange& c : s.changes) {
    text += (text.empty() ? "" : ", ") + c.name;
    if (!settings::is_digest(c.name)) text += " " + shown(c.value) + " (was " + shown(c.old) + ")";
  }
  return text.empty() ? "" : "from step " + std::to_string(s.position.step + 1) + " on: " + text;
}

// Checks that the run of checkpoint `c` continues with the same settings but for changes that were requested, and reads
// its position. `mesh` is the mesh of this start.
void resume_from(RunSetup& s, const ckpt::Checkpoint& c, const ckpt::Checkpoint& model, const json::Value& mesh) {
  const std::string what = c.path() + ": /train";
  s.position = ckpt::position_of(c);
  const json::Value* found = c.train().as_object().find("settings");
  if (found == nullptr || !found->is_object()) throw Error(what + ": has no settings, so the run cannot be resumed");
  json::Value settings = *found;
  settings::complete_lora_settings(settings, s.settings);
  settings::complete_optimizer_settings(settings);
  const hf::ModelConfig trained = settings::config_to_train(c);
  if (s.lora && trained.lora && s.lora->targets == trained.lora->targets)  // other globs for the same linears
    settings.as_object().set("lora-targets", s.settings.as_object().at("lora-targets"));
  for (const auto& [key, value] : s.settings.as_object()) {
    if (!settings.as_object().contains(key)) throw Error(what + ": settings: \"" + key + "\" is missing");
  }
  std::vector<std::string> change = s.config.change;
  if (s.config.any_template) change.emplace_back("template");
  s.changes = settings::changed_settings(settings, s.settings, change, s.config.out);
  settings::check_same_adapters(trained, c.path(), settings::config_to_train(model, s.lora.has_value()), s.lora,
                                s.config.model);
  move_base(s, settings.as_object(), what);
  if (s.changes_optimizer())
    s.position.updates = 0;
  else
    settings::check_moments(c, s.model_spec.table);
  note_phase(s, c);
  note_mesh(s, c.mesh(), mesh);
  s.notes.push_back(note_of_changes(s));
}

// Takes over a resolved model, with what training adds to it. Returns the identifier of its tokenizer.
std::optional<std::string> take_model(RunSetup& s, ModelSetup model) {
  settings::RunConfig& c = s.config;
  c.precision = std::move(model.precision);
  c.seq_length = model.length;
  s.table = std::move(model.table);
  s.model_spec = std::move(model.model_spec);
  settings::add_training(c, s.model_spec);
  if (s.model_spec.config.experts) std::erase(c.precision.given, "tensor-stats-every");  // acts in every precision
  s.notes = std::move(model.notes);
  s.notes.insert(s.notes.begin(), settings::note_of_unused(c.precision, c.precision.recipe_names()));
  if (c.optimizer.algorithm == optim::Algorithm::muon &&
      std::ranges::none_of(s.model_spec.table, &model::Parameter::muon))
    s.notes.push_back(cli::flag_name("optimizer") + " muon: only adapters are trained, and AdamW updates them");
  return model.tokenizer;
}

// Resolves the adapters of the run. `model` is that of the checkpoint to start from: a run that is resumed keeps its
// adapters, which are compared later, and other runs get those that were resolved.
void resolve_adapters(RunSetup& s, hf::ModelConfig& model, const ckpt::Checkpoint& first) {
  const hf::ModelConfig base = settings::config_to_train(first, s.config.lora.wanted());
  s.adapter = settings::open_adapter(s.config, base);
  s.lora = settings::resolve_lora(s.config.lora, base, first.path(), s.adapter);
  if (s.lora) settings::check_beside_adapters(s.config);
  if (!s.resuming) model.lora = s.lora;
  if (model.lora && s.lora) model.lora->dropout = s.lora->dropout;
}

// Sets the mesh of so many ranks. `path` is that of the model in messages. Throws Error for a mesh that does not fit.
void resolve_mesh(RunSetup& s, const std::string& path, std::int64_t ranks) {
  s.mesh = settings::mesh_of_run(s.config, path, s.model_spec, ranks, "fp8-step");
}

RunSetup resolve_alone(const settings::RunConfig& config, std::int64_t ranks, const RunInputs& inputs,
                       const state::RunCheckpoints& checkpoints) {
  RunSetup s;
  s.config = config;
  s.resuming = checkpoints.resuming();
  const ckpt::Checkpoint& checkpoint = checkpoints.start();
  const data::TokenFile& tokens = *inputs.tokens;
  s.source = checkpoint.path();
  hf::ModelConfig model = settings::config_to_train(checkpoint, config.lora.wanted());
  const std::string& path = s.resuming ? s.source : config.model;  // which messages name
  settings::check_experts(config, path, model);
  resolve_adapters(s, model, checkpoints.model());
  std::vector<std::string> notes;
  if (s.resuming) settings::continue_precision(s.config.precision, checkpoint, notes);
  settings::check_statistics(s.config);
  const std::optional<std::string> known =
      take_model(s, resolve_model(ModelRequest::of(s.config), model, checkpoint, checkpoints.model(), tokens));
  resolve_mesh(s, path, ranks);
  s.notes.insert(s.notes.begin(), notes.begin(), notes.end());
  s.notes.push_back(settings::note_of_expert_rows(s.config));
  settings::set_resolved(s.config.flags, config.precision, s.config.precision);
  settings::set_length(s.config.flags, s.config.seq_length);
  if (!checkpoint.tokenizer()) s.tokenizer = known ? known : tokens.info().tokenizer;
  const bool new_template = s.resuming && std::ranges::find(config.change, "template") != config.change.end();
  RunTemplate form = resolve_template(tokens, inputs.eval_tokens ? &*inputs.eval_tokens : nullptr, checkpoint,
                                      config.lora.folder, known, s.resuming, config.any_template || new_template);
  s.texts = std::move(form.texts);
  s.notes.push_back(std::move(form.note));
  s.sample = resolve_sample(config, checkpoint, model, s.tokenizer, s.texts, form.end);
  s.global_batch = checked_mul(checked_mul(config.batch_size, config.grad_accumulation),
                               std::int64_t{s.mesh.data_parts()}, "global batch");
  s.sampler.emplace(tokens, config.sampler, config.seed, s.config.seq_length, s.global_batch, config.documents);
  s.config.documents = s.sampler->separate() ? data::DocumentMode::separate : data::DocumentMode::joined;
  for (std::string& note : settings::document_notes(tokens, *s.sampler)) s.notes.push_back(std::move(note));
  settings::check_some_fp8(s.table, s.config.precision, true);
  s.settings = settings::fixed_settings(s.config, {s.global_batch, checkpoints.model().digest(), tokens.digest(),
                                                   s.lora, s.adapter ? s.adapter->digest() : "", form.id});
  if (s.resuming) resume_from(s, checkpoint, checkpoints.model(), mesh_record(s.mesh));
  if (!s.resuming && !config.change.empty())
    s.notes.push_back(cli::flag_name("change") + ": " + config.out + " has no checkpoint, so nothing changes");
  resolve_steps(s.config, s.sampler->samples(), s.global_batch, s.position.base);
  s.sampler->begin_at({s.position.base.step, s.position.base.sample});
  s.last_step = config.until_step > 0 ? std::min(config.until_step, s.config.steps) : s.config.steps;
  const auto runs = [](const model::Parameter& p) { return p.fp8 && (p.gemms.forward || p.gemms.dgrad); };
  if (s.model_spec.config.lora && s.config.precision.recipe_or_null() != nullptr &&
      std::ranges::none_of(s.model_spec.table, runs))
    throw Error(cli::flag_name("fp8-gemms") + ": wgrad alone: frozen weights have no gradient, so no GEMM runs in FP8",
                Exit::fp8_missing);
  if (inputs.eval_tokens) {
    settings::check_vocabulary(*inputs.eval_tokens, model);
    s.notes.push_back(settings::check_tokenizer(*inputs.eval_tokens, checkpoint, known, config.any_tokenizer));
    s.eval_sampler.emplace(*inputs.eval_tokens, data::SamplerKind::sequential, 0, s.config.seq_length, 1,
                           config.documents);
    for (std::string& note : settings::document_notes(*inputs.eval_tokens, *s.eval_sampler))
      s.notes.push_back(std::move(note));
  }
  return s;
}

}  // namespace

bool RunSetup::changes_optimizer() const {
  return std::ranges::find(changes, "optimizer", &settings::SettingChange::name) != changes.end();
}

bool RunSetup::changes_computation() const {
  return std::ranges::any_of(changes, [](const settings::SettingChange& c) { return c.name != kMesh; });
}

void RunSetup::divide_layers(device::DeviceType device) {
  shard::ModelSpec& spec = model_spec;
  const model::UnitCosts costs = settings::costs_of_units(spec.config, spec.table, config.seq_length, device);
  spec.store.stages = settings::layers_of_stages(config, costs);
  bubble = model::expected_bubble(model::stage_costs(costs, spec.store.stages), spec.micro_batches);
}

gemm::Count RunSetup::planned(std::int64_t logit_bytes, const model::StageRange& stage) const {
  const quant::Recipe* recipe = config.precision.recipe_or_null();
  if (recipe == nullptr) return {};
  gemm::Count planned =
      model::planned_fp8(model_spec.config, model::table_of_stage(model_spec.table, stage), *recipe,
                         config.batch_size * config.seq_length, model_spec.decoder(logit_bytes), true);
  planned.gemms *= config.grad_accumulation;
  return planned;
}

RunInputs open_inputs(const settings::RunConfig& config, comm::Communicator& host_comm) {
  RunInputs inputs;
  comm::agree(host_comm, [&] {
    inputs.tokens.emplace(config.data);
    if (!config.eval_data.empty()) inputs.eval_tokens.emplace(config.eval_data);
  });
  return inputs;
}

RunSetup resolve(const settings::RunConfig& config, comm::Communicator& host_comm, const RunInputs& inputs,
                 const state::RunCheckpoints& checkpoints, std::optional<std::int64_t> ranks) {
  RunSetup setup;
  json::Value shared;
  comm::agree(host_comm, [&] {
    setup = resolve_alone(config, ranks.value_or(host_comm.size()), inputs, checkpoints);
    shared = setup.settings;
    shared.as_object().set("eval-data", inputs.eval_tokens ? inputs.eval_tokens->digest() : "");
  });
  settings::check_same_on_all_ranks(host_comm, shared);
  return setup;
}

}  // namespace fp8::train
