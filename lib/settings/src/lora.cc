// Resolving the adapters of a run.
#include "fp8/settings/lora.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/convert/quantize.h"
#include "fp8/model/initialize.h"
#include "fp8/settings/checks.h"

namespace fp8::settings {
namespace {

// Whether a glob matches a linear: its full name, or the last part of it as in PEFT's target_modules.
bool targets(const std::string& glob, const std::string& module) {
  return glob == kAllTargets || glob_match(glob, module) || glob_match(glob, module.substr(module.rfind('.') + 1));
}

// The name that a family with experts has for what another family names `glob`, as a hint; none if there is none.
std::vector<Hint> other_name(const std::string& glob, const hf::ModelConfig& model) {
  if (!model.experts) return {};
  const hf::ExpertNames own = hf::expert_names(model.family);
  const std::string last = glob.substr(glob.rfind('.') + 1);
  for (const hf::Family family : {hf::Family::mixtral, hf::Family::qwen3_moe}) {
    const hf::ExpertNames other = hf::expert_names(family);
    for (const auto& [named, name] : {std::pair(other.gate, own.gate), {other.up, own.up}, {other.down, own.down}})
      if (last == named) return {{"lora-targets", std::string(name) + " for that linear of experts"}};
  }
  return {};
}

std::vector<std::string> modules_of(const std::vector<std::string>& globs, const hf::ModelConfig& model) {
  std::vector<std::string> all = hf::linear_modules(model);
  if (globs.empty()) return all;
  for (const std::string& glob : globs)
    if (std::ranges::none_of(all, [&](const std::string& module) { return targets(glob, module); }))
      throw Error(cli::flag_name("lora-targets") + ": " + glob + ": matches no linear of a layer of the model",
                  other_name(glob, model));
  std::vector<std::string> chosen;
  for (const std::string& module : all)
    if (std::ranges::any_of(globs, [&](const std::string& glob) { return targets(glob, module); }))
      chosen.push_back(module);
  return chosen;
}

// The flag that describes new adapters, if one is given; else empty.
std::string new_adapters(const LoraSettings& s) {
  if (!s.folder.empty()) return "lora";
  if (s.rank > 0) return "lora-rank";
  if (s.alpha) return "lora-alpha";
  if (!s.targets.empty()) return "lora-targets";
  return s.rslora ? "rslora" : "";
}

// The rows of an expert differ with the mesh, and with them the elements that dropout would leave out; PEFT refuses
// dropout of experts too. `source`: what the adapters come from.
void check_dropout(const hf::LoraConfig& lora, const std::string& source, const hf::ModelConfig& model) {
  if (lora.dropout == 0 || !model.experts) return;
  for (const std::string& module : lora.targets)
    if (module.find(".experts.") != std::string::npos)
      throw Error(source + ": " + module + ": adapters of experts have no dropout; use " +
                  cli::flag_name("lora-dropout") + " 0, or " + cli::flag_name("lora-targets") + " without experts");
}

}  // namespace

void check_lora_settings(const RunConfig& c) {
  const LoraSettings& s = c.lora;
  if (!s.folder.empty()) {
    LoraSettings others = s;
    others.folder.clear();
    if (const std::string other = new_adapters(others); !other.empty())
      throw Error(cli::flag_name(other) + ": contradicts " + cli::flag_name("lora") + ", whose adapter has its own");
  }
  if (s.wanted()) check_beside_adapters(c);
}

void check_new_adapters(const LoraSettings& s) {
  const std::string given = new_adapters(s);
  if (!given.empty() && !s.wanted())
    throw Error(cli::flag_name(given) + ": needs " + cli::flag_name("lora-rank") + " or " + cli::flag_name("lora"));
}

void check_beside_adapters(const RunConfig& c) {
  if (c.master != DType::f32)
    throw Error(cli::flag_name("master") + ": bf16: adapters have f32 master weights, and the model has none");
  check_unfused(c.precision);
}

std::optional<hf::AdapterFolder> open_adapter(const RunConfig& config, const hf::ModelConfig& model) {
  if (config.lora.folder.empty()) return std::nullopt;
  return hf::AdapterFolder(config.lora.folder, model);
}

std::optional<hf::LoraConfig> resolve_lora(const LoraSettings& s, const hf::ModelConfig& model, const std::string& path,
                                           const std::optional<hf::AdapterFolder>& folder) {
  const std::string given = new_adapters(s);
  std::optional<hf::LoraConfig> lora = model.lora;
  if (lora && !given.empty())
    throw Error(cli::flag_name(given) + ": " + path + " has adapters of rank " + std::to_string(lora->rank) +
                " already, which the run goes on with; leave the flag out");
  if (folder) lora = folder->lora();
  if (!lora && s.rank > 0)
    lora = hf::LoraConfig{s.rank, s.alpha.value_or(2 * static_cast<double>(s.rank)), s.rslora, 0,
                          modules_of(s.targets, model)};
  if (!lora) check_new_adapters(s);
  if (!lora && s.dropout)
    throw Error(cli::flag_name("lora-dropout") + ": needs " + cli::flag_name("lora-rank") + " or " +
                cli::flag_name("lora"));
  if (lora && s.dropout) lora->dropout = *s.dropout;
  if (lora) check_dropout(*lora, s.dropout ? cli::flag_name("lora-dropout") : folder ? s.folder : path, model);
  return lora;
}

void check_same_adapters(const hf::ModelConfig& checkpoint, const std::string& path, hf::ModelConfig model,
                         const std::optional<hf::LoraConfig>& lora, const std::string& name) {
  model.lora = lora;
  if (model.lora && checkpoint.lora) model.lora->dropout = checkpoint.lora->dropout;
  if (!hf::same_model(checkpoint, model))
    throw Error(path + ": /config: is not the configuration of " + name + ", which the run began with" +
                (lora || checkpoint.lora ? ", and of its adapters" : ""));
}

AdapterValues initial_adapters(const std::optional<hf::AdapterFolder>& folder, std::uint64_t seed) {
  return [&folder, seed](const model::Parameter& p, shard::RowRange rows, std::span<float> out) {
    if (folder) {
      folder->read_rows(p.name, rows.begin, rows.count(), out);
    } else {
      model::initial_values(p, 0, seed, rows.begin * p.cols(), out);
    }
  };
}

namespace {

// The recipe that computes with stored codes of this granularity, and a text that says what the codes are.
std::pair<std::string, std::string> recipe_of_codes(quant::Granularity scaling) {
  using quant::Granularity;
  if (scaling == Granularity::row) return {"rowwise", "FP8 codes with one scale for each row"};
  if (scaling == Granularity::block128x128) return {"blockwise", "FP8 codes with scales for blocks of 128 x 128"};
  if (scaling == Granularity::block16x16) return {"nvfp4", "FP4 codes"};
  return {"tensorwise", "FP8 codes with one scale each"};
}

}  // namespace

void take_recipe_of_codes(PrecisionConfig& precision, const ckpt::Checkpoint& checkpoint,
                          const std::vector<model::Parameter>& table) {
  using quant::Granularity;
  convert::check_codes_of_linears(checkpoint, table);
  const std::optional<Granularity> scaling = convert::stored_scaling(checkpoint, table);
  if (!scaling) return;
  if (*scaling == Granularity::block1x32)
    throw Error(checkpoint.path() +
                ": holds FP8 codes with MX scales, which nothing computes with; dequantize it first: fp8-quantize " +
                checkpoint.path() + " --dequantize -o model.h5");
  const bool rows = *scaling == Granularity::row;
  const auto [recipe, form] = recipe_of_codes(*scaling);
  const std::string holds = ": " + checkpoint.path() + " holds " + form + ", for which ";
  if (precision.was_given("precision") && precision.precision != Precision::fp8)
    throw Error(cli::flag_name("precision") + ": " + std::string(name_of(precision.precision)) + holds + "it is fp8");
  if (precision.was_given("recipe") && (precision.recipe != recipe || !precision.linear_recipes.empty()))
    throw Error(cli::flag_name("recipe") + ": " + precision.recipe_text() + holds + "it is " + recipe);
  if (precision.was_given("rowwise-single-copy") && precision.rowwise_single_copy != rows)
    throw Error(cli::flag_name("rowwise-single-copy") + holds + "it is " + (rows ? "on" : "off"));
  precision.precision = Precision::fp8;
  precision.recipe = recipe;
  precision.rowwise_single_copy = rows;
  // E5M2 gradients add 2 dB of noise to those of adapters.
  if (*scaling == Granularity::tensor && !precision.was_given("fp8-format")) precision.e4m3_gradients = true;
}

std::vector<std::string> fitting_recipes(const EvalConfig& config, const ckpt::Checkpoint& checkpoint,
                                         std::vector<std::string>& notes) {
  if (config.recipes.empty()) return {config.precision.recipe};
  const auto table = model::parameter_table(hf::parse_config(checkpoint.config(), checkpoint.path()));
  if (!config.all_recipes || !convert::stored_scaling(checkpoint, table)) return config.recipes;
  PrecisionConfig of_codes = config.precision;
  std::erase(of_codes.given, "recipe");
  take_recipe_of_codes(of_codes, checkpoint, table);
  std::string others;
  for (const std::string& name : config.recipes)
    if (name != of_codes.recipe) others += (others.empty() ? "" : ", ") + name;
  notes.push_back(cli::flag_name("recipe") + " all: uses " + of_codes.recipe + " alone, to which the codes of " +
                  checkpoint.path() + " belong; leaves out " + others);
  return {of_codes.recipe};
}

void check_codes_run(const ckpt::Checkpoint& checkpoint, const std::vector<model::Parameter>& table) {
  for (const model::Parameter& p : table)
    if (is_coded(p.stored) && !(p.fp8 && p.gemms.forward && p.gemms.dgrad))
      throw Error(checkpoint.path() + ": " + p.name +
                  ": stored as codes, which need low precision in forward and dgrad" +
                  (p.fp8 ? "" : " (" + p.reason + ")"));
}

std::string text_of_lora(const hf::LoraConfig& lora, const std::vector<model::Parameter>& table) {
  return "adapters (LoRA):\n  rank " + std::to_string(lora.rank) + ", alpha " + format_short(lora.alpha, 6) + " on " +
         std::to_string(lora.targets.size()) + " linears; " + std::to_string(model::trainable_count(table)) + " of " +
         std::to_string(model::parameter_count(table)) + " parameters are trained\n";
}

}  // namespace fp8::settings
