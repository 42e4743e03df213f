// Resolving a run without weights, data and processes, and its memory.
#include "fp8/plan/run.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/cli/command.h"
#include "fp8/model/presets.h"
#include "fp8/model/record.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/lora.h"
#include "fp8/settings/mesh.h"

namespace fp8::plan {
namespace {

constexpr std::int64_t kMostRanks = 65536;

using device::Context;
using dtype::DType;

// The format of the weights that a configuration states; f32 as fp8-init writes them if it states none.
DType stored_format(const json::Value& config) {
  for (const char* key : {"dtype", "torch_dtype"})
    if (const json::Value* v = config.as_object().find(key); v != nullptr && v->is_string())
      return v->as_string() == "float32" ? DType::f32 : DType::bf16;
  return DType::f32;
}

bool is_checkpoint(const std::string& name) {
  std::error_code ignored;
  if (name.ends_with(".json")) return false;
  if (std::filesystem::is_directory(name, ignored)) return !std::filesystem::exists(name + "/config.json", ignored);
  return std::filesystem::exists(name, ignored);
}

std::string file_of(const std::string& name) {
  std::error_code ignored;
  return std::filesystem::is_directory(name, ignored) ? name + "/config.json" : name;
}

Model open_checkpoint(const std::string& name) {
  const std::string path = model::resolve_checkpoint_argument(name);
  Model m{name, {}, model::open_checkpoint(path), DType::f32, {}};
  m.config = hf::parse_config(m.checkpoint->config(), path);
  return m;
}

// The model with the adapters of the settings.
hf::ModelConfig with_adapters(const Model& model, const settings::PlanConfig& config) {
  hf::ModelConfig trained =
      model.checkpoint ? settings::config_to_train(*model.checkpoint, config.lora.wanted()) : model.config;
  const auto folder = settings::open_adapter(config, trained);
  const auto lora = settings::resolve_lora(config.lora, trained, model.name, folder);
  if (lora) settings::check_beside_adapters(config);
  trained.lora = lora;
  return trained;
}

// Throws Error for more ranks than are planned for.
std::int64_t bounded(std::int64_t ranks) {
  if (ranks > kMostRanks)
    throw Error(cli::flag_name("ranks") + ": " + std::to_string(ranks) + " ranks are more than the " +
                std::to_string(kMostRanks) + " that can be planned for");
  return ranks;
}

// The ranks of a plan: those asked for or, with 0, the product of the sizes of the mesh.
std::int64_t ranks_of(const settings::PlanConfig& c, std::int64_t asked) {
  std::int64_t ranks = 1;
  for (const std::int64_t n : {c.dp_replicate, std::max<std::int64_t>(1, c.dp_shard), c.tp, c.pp})
    ranks = bounded(checked_mul(ranks, n, "ranks of the mesh"));
  bounded(c.ep);
  return asked > 0 ? bounded(asked) : ranks;
}

// Throws Error for assumptions that do not fit the model.
void check_assumptions(const settings::PlanConfig& c, const hf::ModelConfig& model) {
  if (c.imbalance > 1 && model.sparse_layers() == 0)
    throw Error(cli::flag_name("imbalance") + ": the model has no experts");
  if (c.virtual_stages > 1 && (c.pp == 1 || c.virtual_stages * c.pp > model.num_hidden_layers))
    throw Error(cli::flag_name("vp") + ": " + std::to_string(c.virtual_stages) + " stages on each of " +
                std::to_string(c.pp) + " ranks of " + cli::flag_name("pp") + ", of " +
                std::to_string(model.num_hidden_layers) + " layers");
}

// The note of keys that a configuration lacks, if any of them decides memory or time; else empty.
std::string note_of_defaults(const hf::ModelConfig& config) {
  constexpr std::array<std::string_view, 4> kOfValues{"hidden_act", "rms_norm_eps", "rope_theta", "initializer_range"};
  const auto decides = [&](const std::string& key) {
    return std::ranges::none_of(kOfValues, [&](std::string_view name) { return key.starts_with(name); });
  };
  return std::ranges::any_of(hf::defaulted_keys(config), decides) ? hf::defaults_note(config) : "";
}

}  // namespace

Model open_model(const std::string& name, const std::vector<std::string>& keys) {
  if (is_checkpoint(name)) {
    if (!keys.empty()) throw Error(cli::flag_name("set") + ": " + keys.front() + ": " + name + " is a checkpoint");
    return open_checkpoint(name);
  }
  json::Value value = model::read_model_config(file_of(name));
  try {
    for (const std::string& key : keys) model::set_config_key(value, key);
  } catch (const Error& e) {
    throw Error(cli::flag_name("set") + " " + e.what(), e.code());
  }
  Model m{name, hf::parse_config(value, name), std::nullopt, stored_format(value), {}};
  if (const std::string note = note_of_defaults(m.config); !note.empty()) m.notes.push_back(name + ": " + note);
  return m;
}

double Run::tokens_per_step() const {
  return static_cast<double>(batch_size) * static_cast<double>(length) * static_cast<double>(micro_batches) *
         static_cast<double>(mesh.data_parts());
}

Run resolve(const Model& model, const settings::PlanConfig& config, const settings::PrecisionConfig& precision,
            std::int64_t ranks, device::DeviceType device) {
  Run run;
  run.precision = precision;
  hf::ModelConfig trained = with_adapters(model, config);
  std::vector<model::Parameter> table;
  if (model.checkpoint) {
    settings::take_recipe_of_codes(run.precision, *model.checkpoint, model::parameter_table(trained));
    settings::check_precision(run.precision);
    table = settings::table_with_precisions(trained, run.precision, *model.checkpoint, *model.checkpoint);
  } else {
    settings::check_precision(run.precision);
    table = settings::table_with_precisions(trained, run.precision, model.name, model.stored);
  }
  settings::check_experts(config, model.name, trained);
  check_assumptions(config, trained);
  settings::check_some_fp8(table, run.precision, true);
  run.length = settings::resolved_length(config.seq_length, {}, trained);
  run.notes.push_back(config.seq_length > 0 ? settings::note_of_length(run.length, trained)
                                            : cli::flag_name("seq-length") + ": " + std::to_string(run.length) +
                                                  " tokens by default; the model's context is " +
                                                  std::to_string(trained.max_position_embeddings));
  run.batch_size = config.batch_size;
  run.micro_batches = config.grad_accumulation;
  settings::check_micro_batch(run.batch_size, run.length);
  run.spec.table = settings::active_table(std::move(table), run.precision);
  run.spec.config = std::move(trained);
  run.spec.store = settings::store_options(run.precision, nullptr);
  run.spec.execution = run.precision.execution;
  settings::add_training(config, run.spec);
  run.spec.store.expert_rows = std::max(config.expert_rows, config.imbalance);  // so that the rows fit in one pass
  settings::RunConfig sized = config;
  sized.seq_length = run.length;
  sized.precision = run.precision;
  run.mesh = settings::mesh_of_run(sized, model.name, run.spec, ranks_of(config, ranks), "fp8-plan");
  const shard::ModelSpec& spec = run.spec;
  run.spec.store.stages =
      settings::layers_of_stages(config, settings::costs_of_units(spec.config, spec.table, run.length, device));
  return run;
}

namespace {

// The plan of the rank that needs the most with so many bytes for a block of logits. In each stage that is the first
// rank, since rows, heads and experts that do not divide evenly make the first parts larger, or the last one of --tp,
// which holds other copies.
JobMemory memory_with(const Run& run, const Target& target, std::int64_t logit_bytes) {
  shard::ModelSpec spec = run.spec;
  spec.execution.logit_bytes = logit_bytes;
  JobMemory job;
  job.stages.assign(static_cast<std::size_t>(run.mesh.pp), 0);
  const int of_stage = run.mesh.dp_replicate * run.mesh.dp_shard * run.mesh.tp, last = run.mesh.tp - 1;
  for (int i = 0; i < run.mesh.pp * (last > 0 ? 2 : 1); ++i) {
    const int stage = last > 0 ? i / 2 : i, rank = stage * of_stage + (last > 0 ? i % 2 * last : 0);
    const comm::Mesh mesh = comm::Mesh::imagined(run.mesh, rank, run.ranks_per_node);
    shard::MemoryPlan plan = shard::plan_rank(Context{target.device}, mesh, spec, run.shape(), run.shape());
    std::size_t& most = job.stages[static_cast<std::size_t>(stage)];
    most = std::max(most, plan.total());
    if (plan.bytes + plan.scratch > job.plan.bytes + job.plan.scratch) job.rank = rank, job.plan = std::move(plan);
  }
  return job;
}

}  // namespace

// As shard::plan_fitting(), which tries all sizes of blocks also where the smallest do not fit.
JobMemory memory_of(const Run& run, const Target& target) {
  if (target.device == device::DeviceType::host) return memory_with(run, target, model::kLeastLogits);
  JobMemory job = memory_with(run, target, model::kMostLogits);
  const auto fits = [&](const JobMemory& j) { return target.gpu_memory == 0 || j.plan.total() <= target.gpu_memory; };
  if (fits(job)) return job;
  JobMemory least = memory_with(run, target, model::kLeastLogits);
  if (!fits(least)) return least;
  for (std::int64_t bytes = model::kMostLogits / 2; bytes > model::kLeastLogits; bytes /= 2)
    if (job = memory_with(run, target, bytes); fits(job)) return job;
  return least;
}

}  // namespace fp8::plan
