// What follows from the flags of a run.
#include "fp8/train/config.h"

#include "fp8/base/error.h"
#include "fp8/json/json.h"

namespace fp8::train {

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
  return precision == Precision::fp8 ? &quant::find_recipe(recipe) : nullptr;
}

bool PrecisionConfig::power_of_2_scales() const {
  const quant::Recipe* r = recipe_or_null();
  return r != nullptr && power_of_2.value_or(r->power_of_2);
}

StoreOptions store_options(const PrecisionConfig& precision, quant::CastCounts* counts) {
  StoreOptions o;
  o.compute = precision.activations;
  o.fp8.recipe = precision.recipe_or_null();
  o.fp8.options = {precision.power_of_2_scales(), counts};
  o.gather_codes = precision.gather_codes.value_or(true);
  return o;
}

json::Value fixed_settings(const Config& config, std::int64_t global_batch, const std::string& model_digest, const std::string& data_digest) {
  const optim::Schedule& s = config.schedule;
  return json::object({{"model", model_digest},
                       {"data", data_digest},
                       {"seq-length", config.seq_length},
                       {"global batch (ranks x --batch-size x --grad-accumulation)", global_batch},
                       {"sampler", config.sampler == data::SamplerKind::shuffle ? "shuffle" : "sequential"},
                       {"seed", config.seed},
                       {"lr", s.lr},
                       {"schedule", std::string(optim::schedule_names()[static_cast<std::size_t>(s.kind)])},
                       {"warmup-steps", config.warmup_ratio > 0 ? json::Value() : json::Value(s.warmup)},
                       {"warmup-ratio", config.warmup_ratio},
                       {"min-lr", s.min_lr},
                       {"decay-steps", s.decay_steps},
                       {"weight-decay", static_cast<double>(config.optimizer.weight_decay)},
                       {"beta1", static_cast<double>(config.optimizer.beta1)},
                       {"beta2", static_cast<double>(config.optimizer.beta2)},
                       {"eps", static_cast<double>(config.optimizer.eps)},
                       {"clip", config.clip},
                       {"master", std::string(dtype::name_of(config.master))},
                       {"moments", std::string(dtype::name_of(config.moments))}});
}

void check_same_settings(const json::Value& before, const json::Value& now, const std::string& path) {
  for (const auto& [key, value] : now.as_object()) {
    const json::Value* old = before.as_object().find(key);
    if (old == nullptr || *old == value) continue;
    const bool digest = key == "model" || key == "data";
    throw Error(path + ": this run was started with another --" + key +
                (digest ? std::string() : " (" + json::dump(*old) + ", now " + json::dump(value) + ")") +
                "; use another --out, or the same settings to resume");
  }
}

}  // namespace fp8::train
