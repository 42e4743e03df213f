// What a configuration of precision says, and the records of it.
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

const quant::Recipe* PrecisionConfig::recipe_or_null() const {
  if (precision != Precision::fp8) return nullptr;
  const quant::Recipe& found = quant::find_recipe(recipe);
  if (rowwise_single_copy) return &quant::with_single_copy(found);
  return e4m3_gradients ? &quant::with_e4m3_gradients(found) : &found;
}

bool PrecisionConfig::power_of_2_scales() const {
  const quant::Recipe* r = recipe_or_null();
  return r != nullptr && power_of_2.value_or(r->power_of_2);
}

bool PrecisionConfig::was_given(std::string_view flag) const { return std::ranges::find(given, flag) != given.end(); }

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

json::Value configuration_of(const PrecisionConfig& p) {
  PrecisionConfig usual;
  usual.precision = p.precision;
  usual.recipe = p.recipe;
  usual.rowwise_single_copy = p.rowwise_single_copy;  // changes the default of the FP8 all-gather
  const json::Value all = phase_of(p), defaults = phase_of(usual);
  json::Value config = json::object({{"precision", std::string(name_of(p.precision))}, {"recipe", p.recipe}});
  json::Object& o = config.as_object();
  for (const auto& [key, value] : all.as_object()) {
    const json::Value* usually = defaults.as_object().find(key);
    if (usually == nullptr || *usually != value) o.set(key, value);
  }
  if (p.activations != dtype::DType::bf16) o.set("activations", "f32");
  if (p.rowwise_single_copy) o.set("rowwise-single-copy", true);
  const quant::Recipe* recipe = p.recipe_or_null();
  if (p.emulate && recipe != nullptr && !recipe->emulated_everywhere()) o.set("emulate", true);
  if (p.attention.kernels == ops::AttentionKernels::plain) o.set("attention", "plain");
  return config;
}

shard::StoreOptions store_options(const PrecisionConfig& precision, quant::CastCounts* counts) {
  shard::StoreOptions o;
  o.compute = precision.activations;
  o.fp8.recipe = precision.recipe_or_null();
  o.fp8.options = {precision.power_of_2_scales(), counts, precision.emulate};
  o.fp8.accumulation = precision.accumulation;
  o.delayed = precision.delayed;
  o.fp8_all_gather = precision.fp8_all_gather;
  return o;
}

}  // namespace fp8::settings
