// Queries of a configuration of precision, and its records.
#include "fp8/settings/config.h"

#include <algorithm>

#include "fp8/settings/setting.h"

namespace fp8::settings {
std::string_view name_of(Precision p) {
  switch (p) {
    case Precision::fp32:
      return "fp32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp8:
      return "fp8";
  }
  return "?";
}

const quant::Recipe& PrecisionConfig::variant_of(const std::string& name) const {
  const quant::Recipe& found = quant::find_recipe(name);
  if (rowwise_single_copy && name == "rowwise") return quant::with_single_copy(found);
  if (found.fp4()) return quant::with_fp4_options(found, stochastic_gradients, hadamard);
  return e4m3_gradients ? quant::with_e4m3_gradients(found) : found;
}

const quant::Recipe* PrecisionConfig::recipe_or_null() const {
  return precision == Precision::fp8 ? &variant_of(recipe) : nullptr;
}

std::vector<const quant::Recipe*> PrecisionConfig::recipes_used() const {
  std::vector<const quant::Recipe*> all;
  if (precision == Precision::fp8)
    for (const std::string& name : recipe_names()) all.push_back(&variant_of(name));
  return all;
}

std::vector<std::string> PrecisionConfig::recipe_names() const {
  std::vector<std::string> names{recipe};
  for (const LinearRecipe& r : linear_recipes)
    if (std::ranges::find(names, r.recipe) == names.end()) names.push_back(r.recipe);
  return names;
}

std::string PrecisionConfig::recipe_text() const {
  std::string text = recipe;
  for (const LinearRecipe& r : linear_recipes) text += "," + r.glob + "=" + r.recipe;
  return text;
}

bool PrecisionConfig::power_of_2_scales() const {
  const quant::Recipe* r = recipe_or_null();
  return r != nullptr && power_of_2.value_or(r->power_of_2);
}

bool PrecisionConfig::was_given(std::string_view flag) const { return std::ranges::find(given, flag) != given.end(); }

bool PrecisionConfig::has_rowwise() const {
  const std::vector<std::string> names = recipe_names();
  return std::ranges::find(names, "rowwise") != names.end();
}

bool PrecisionConfig::has_nvfp4() const {
  return std::ranges::any_of(recipe_names(), [](const std::string& n) { return quant::find_recipe(n).fp4(); });
}

bool PrecisionConfig::has_tensor_scales() const {
  return std::ranges::all_of(recipe_names(), [](const std::string& n) { return n == "tensorwise" || n == "current"; });
}

PrecisionConfig precision_under(const PrecisionConfig& precision, const Recipes& recipes, const std::string& recipe) {
  const auto with = [&](const std::string& name) {
    PrecisionConfig p = precision;
    p.recipe = name;
    return p;
  };
  const auto any = [&](bool (PrecisionConfig::*has)() const) {
    return std::ranges::any_of(recipes.recipes,
                               [&](const std::string& name) { return name != kPlainRecipe && (with(name).*has)(); });
  };
  if (recipe == kPlainRecipe) {
    PrecisionConfig plain;
    plain.execution = precision.execution;
    plain.given = {"precision"};
    return plain;
  }
  PrecisionConfig one = with(recipe);
  if (!one.has_rowwise() && any(&PrecisionConfig::has_rowwise)) one.rowwise_single_copy = false;
  if (!one.has_tensor_scales() && any(&PrecisionConfig::has_tensor_scales)) one.fuse_projections = false;
  if (one.has_nvfp4() && recipes.recipes.size() > 1) {
    one.e4m3_gradients = false;
    one.power_of_2.reset();
    one.typed.clear();
  }
  return one;
}

PrecisionConfig precision_of_routes(const InspectConfig& config) {
  const bool exact = config.routes == kExactRecipe;
  const bool fp8 = !exact && config.routes != kPlainRecipe;
  PrecisionConfig p = precision_under(config.precision, config, fp8 ? config.routes : kPlainRecipe);
  if (fp8) {
    p.given.emplace_back("recipe");
    return p;
  }
  p.precision = exact ? Precision::fp32 : Precision::bf16;
  p.execution.activation = exact ? DType::f32 : DType::bf16;
  return p;
}

json::Value phase_of(const PrecisionConfig& precision) {
  Config config;
  config.precision = precision;
  json::Value phase = json::object({});
  for (const Setting& s : all_settings()) {
    if (s.resume != Resume::phase) continue;
    if (s.recorded != nullptr ? !s.recorded(precision) : precision.recipe_or_null() == nullptr) continue;
    phase.as_object().set(s.flag.name, s.record ? s.record(config, {}) : s.value(config));
  }
  return phase;
}

json::Value recipe_value(const PrecisionConfig& p) {
  if (p.linear_recipes.empty()) return p.recipe;
  json::Array values{p.recipe};
  for (const LinearRecipe& r : p.linear_recipes) values.emplace_back(r.glob + "=" + r.recipe);
  return values;
}

json::Value configuration_of(const PrecisionConfig& p) {
  PrecisionConfig usual;
  usual.precision = p.precision;
  usual.recipe = p.recipe;
  usual.linear_recipes = p.linear_recipes;
  usual.rowwise_single_copy = p.rowwise_single_copy;  // changes the default of the FP8 all-gather
  const json::Value all = phase_of(p), defaults = phase_of(usual);
  json::Value config = json::object({{"precision", std::string(name_of(p.precision))}, {"recipe", recipe_value(p)}});
  json::Object& o = config.as_object();
  for (const auto& [key, value] : all.as_object()) {
    const json::Value* usually = defaults.as_object().find(key);
    if (usually == nullptr || *usually != value) o.set(key, value);
  }
  if (p.execution.activation != dtype::DType::bf16) o.set("activations", "f32");
  if (p.rowwise_single_copy) o.set("rowwise-single-copy", true);
  const auto emulates = [](const quant::Recipe* r) { return !r->emulated_everywhere(); };
  if (p.emulate && std::ranges::any_of(p.recipes_used(), emulates)) o.set("emulate", true);
  if (p.execution.attention.kernels == ops::AttentionKernels::plain) o.set("attention", "plain");
  return config;
}

shard::StoreOptions store_options(const PrecisionConfig& precision, quant::CastCounts* counts) {
  shard::StoreOptions o;
  o.compute = precision.execution.activation;
  o.fp8.recipe = precision.recipe_or_null();
  o.fp8.options = {precision.power_of_2_scales(), counts, precision.emulate};
  o.fp8.accumulation = precision.accumulation;
  o.delayed = precision.delayed;
  o.power_of_2 = precision.power_of_2;
  o.fp8_all_gather = precision.fp8_all_gather;
  return o;
}

void add_training(const RunConfig& c, shard::ModelSpec& spec) {
  if (c.optimizer.algorithm == optim::Algorithm::muon) model::assign_muon(spec.table);
  spec.snapshot = c.async_save;
  spec.gathers_gradients = !c.gradients.empty();
  spec.measures_updates = c.update_rms_every > 0;
  spec.store.master = c.master;
  spec.store.moments = c.moments;
  spec.store.reduce = c.reduce;
  spec.store.zero = c.zero;
  spec.store.expert_rows = c.expert_rows;
  spec.store.reshard_after_forward = c.reshard_after_forward;
  spec.store.several_micro_batches = c.grad_accumulation > 1;
  // More of them change neither the memory of a stage nor, by as much as 1e-5, the bubble.
  spec.micro_batches = static_cast<int>(std::min(c.grad_accumulation, std::int64_t{1} << 20));
}

}  // namespace fp8::settings
