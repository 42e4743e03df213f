// Names, defaults and comparison of settings.
#include "fp8/train/config.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fp8/train/flags.h"

namespace fp8::train {
namespace {

// The shortest decimal that is read as `x`, as a double: 0.9, not 0.8999999761581421.
double as_typed(float x) {
  std::array<char, 32> text{};
  const char* end = std::to_chars(text.data(), text.data() + text.size(), x).ptr;
  double value = x;
  (void)std::from_chars(text.data(), end, value);  // cannot fail on output of to_chars
  return value;
}

// The name of a storage format in settings.
std::string flag_value(dtype::DType stored) { return stored == dtype::DType::bf16 ? "bf16" : "fp32"; }

constexpr std::array<std::string_view, 19> kChangeable = {
    "data",     "documents", "seq-length", "batch",        "sampler",      "seed",  "lr",
    "schedule", "warmup",    "min-lr",     "decay-steps",  "weight-decay", "betas", "eps",
    "clip",     "master",    "moments",    "lora-dropout", "steps"};

// A setting as a message names it: its flag, or a description, which has spaces.
std::string spelled(const std::string& key) { return key.find(' ') == std::string::npos ? flag_name(key) : key; }

std::string setting_text(const json::Value& value) {
  return value.is_null() ? "not given" : excerpt(json::dump(value));
}

}  // namespace

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

json::Value phase_of(const PrecisionConfig& p) {
  const quant::Recipe* recipe = p.recipe_or_null();
  json::Value phase = json::object({{"precision", std::string(name_of(p.precision))},
                                    {"recipe", recipe != nullptr ? json::Value(p.recipe) : json::Value()}});
  if (recipe == nullptr) return phase;
  json::Object& o = phase.as_object();
  o.set("activations", std::string(dtype::name_of(p.activations)));
  o.set("power-of-2-scales", p.power_of_2_scales());
  o.set("fp8-all-gather", recipe->fp8_all_gather && p.fp8_all_gather.value_or(true));
  o.set("rowwise-single-copy", p.rowwise_single_copy);
  o.set("fuse-projections", p.fuse_projections);
  o.set("accumulate", std::string(gemm::name_of(p.accumulation)));
  const bool delayed = recipe->scale_rule == quant::ScaleRule::delayed;
  const bool e4m3 = recipe->dgrad.dy.format == dtype::DType::e4m3;
  if (delayed || p.e4m3_gradients) o.set("fp8-format", e4m3 ? "e4m3" : "hybrid");
  if (delayed) {
    o.set("amax-history", p.delayed.history);
    o.set("amax-algo", p.delayed.algorithm == quant::AmaxAlgorithm::max ? "max" : "most_recent");
    o.set("margin", p.delayed.margin);
  }
  o.set("filter", json::Array(p.selection.filters.begin(), p.selection.filters.end()));
  o.set("auto-filter", p.selection.auto_filter);
  o.set("fp8-lm-head", p.selection.lm_head);
  json::Array gemms;
  for (const model::GemmRule& rule : p.selection.gemms)
    gemms.push_back((rule.glob.empty() ? "" : rule.glob + "=") + quant::name_of(rule.gemms));
  o.set("fp8-gemms", std::move(gemms));
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

StoreOptions store_options(const PrecisionConfig& precision, quant::CastCounts* counts) {
  StoreOptions o;
  o.compute = precision.activations;
  o.fp8.recipe = precision.recipe_or_null();
  o.fp8.options = {precision.power_of_2_scales(), counts, precision.emulate};
  o.fp8.accumulation = precision.accumulation;
  o.delayed = precision.delayed;
  o.fp8_all_gather = precision.fp8_all_gather.value_or(true);
  return o;
}

json::Value fixed_settings(const RunConfig& config, std::int64_t global_batch, const std::string& model_digest,
                           const std::string& data_digest) {
  const optim::Schedule& s = config.schedule;
  return json::object({{"model", model_digest},
                       {"data", data_digest},
                       {"seq-length", config.seq_length},
                       {kGlobalBatch, global_batch},
                       {"sampler", config.sampler == data::SamplerKind::shuffle ? "shuffle" : "sequential"},
                       {"documents", config.documents == data::DocumentMode::separate ? "separate" : "joined"},
                       {"seed", config.seed},
                       {"lr", s.lr},
                       {"schedule", std::string(optim::schedule_names()[static_cast<std::size_t>(s.kind)])},
                       {"warmup-steps", config.warmup_ratio > 0 ? json::Value() : json::Value(s.warmup)},
                       {"warmup-ratio", config.warmup_ratio},
                       {"min-lr", s.min_lr},
                       {"decay-steps", s.decay_steps},
                       {"weight-decay", as_typed(config.optimizer.weight_decay)},
                       {"betas", json::Array{as_typed(config.optimizer.beta1), as_typed(config.optimizer.beta2)}},
                       {"eps", as_typed(config.optimizer.eps)},
                       {"clip", config.clip},
                       {"master", flag_value(config.master)},
                       {"moments", flag_value(config.moments)}});
}

void add_lora_settings(const RunConfig& config, const hf::LoraConfig& lora, const std::string& digest,
                       json::Value& settings) {
  const LoraSettings& given = config.lora;
  std::string targets;
  for (const std::string& glob : given.targets) targets += (targets.empty() ? "" : ",") + glob;
  json::Object& o = settings.as_object();
  o.set("lora-rank", lora.rank);
  o.set("lora-alpha", lora.alpha);
  o.set("lora-targets", given.rank == 0 ? json::Value() : json::Value(targets.empty() ? kAllTargets : targets));
  o.set("lora-dropout", lora.dropout);
  o.set("rslora", lora.rslora);
  o.set("lora", digest.empty() ? json::Value() : json::Value(digest));
}

void complete_lora_settings(json::Value& one, json::Value& other) {
  for (const char* key : {"lora-rank", "lora-alpha", "lora-targets", "lora-dropout", "rslora", "lora"}) {
    if (one.as_object().contains(key) == other.as_object().contains(key)) continue;
    for (json::Value* settings : {&one, &other})
      if (!settings->as_object().contains(key)) settings->as_object().set(key, json::Value());
  }
}

std::string first_difference(const json::Value& one, const json::Value& other, const std::string& joint) {
  std::string of_absent;  // difference of a setting that is null now: used if there is no other
  for (const auto& [key, value] : other.as_object()) {
    const json::Value* old = one.as_object().find(key);
    if (old == nullptr || *old == value) continue;
    if (key == "model") return "MODEL";
    if (key == "data" || key == "eval-data" || key == "lora") return spelled(key);  // values are digests
    std::string text = spelled(key) + " (" + setting_text(*old) + joint + setting_text(value) + ")";
    if (!value.is_null() && !(old->is_null() && value == json::Value(0))) return text;
    if (of_absent.empty()) of_absent = text;
  }
  return of_absent;
}

std::string setting_name(const std::string& name) {
  if (name == kGlobalBatch || name == "global-batch" || name == "batch-size" || name == "grad-accumulation")
    return "batch";
  return name == "warmup-steps" || name == "warmup-ratio" ? "warmup" : name;
}

std::span<const std::string_view> changeable_settings() { return kChangeable; }

std::vector<SettingChange> changed_settings(const json::Value& before, const json::Value& now,
                                            const std::vector<std::string>& change, const std::string& path) {
  json::Value fixed = json::object({});
  std::vector<SettingChange> changed;
  for (const auto& [key, value] : now.as_object()) {
    if (std::find(change.begin(), change.end(), setting_name(key)) == change.end()) {
      fixed.as_object().set(key, value);
      continue;
    }
    const json::Value* old = before.as_object().find(key);
    if (old != nullptr && *old != value) changed.push_back({key == kGlobalBatch ? "batch" : key, *old, value});
  }
  const std::string difference = first_difference(before, fixed, ", now ");
  if (difference.empty()) return changed;
  std::string remedy;
  bool unchangeable = false;
  for (const auto& [key, value] : fixed.as_object()) {
    const json::Value* old = before.as_object().find(key);
    if (old == nullptr || *old == value) continue;
    const std::string name = setting_name(key);
    if (std::ranges::find(kChangeable, name) == kChangeable.end()) unchangeable = true;
    if (("," + remedy + ",").find("," + name + ",") == std::string::npos) remedy += (remedy.empty() ? "" : ",") + name;
  }
  throw Error(path + ": this run was started with another " + difference + "; use another " + flag_name("out") +
              ", or the same settings to resume" +
              (unchangeable ? "" : ", or " + flag_name("change") + " " + remedy + " to go on with the new ones"));
}

void check_same_on_all_ranks(comm::Communicator& host_comm, const json::Value& mine) {
  const std::vector<std::string> all = host_comm.all_gather(json::dump(mine));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const std::string difference =
        first_difference(json::parse(all[0], "rank 0"), json::parse(all[rank], "a rank"), " on rank 0, ");
    throw comm::AgreedError("rank " + std::to_string(rank) + ": started with another " + difference +
                            "; all ranks need the same");
  }
}

}  // namespace fp8::train
