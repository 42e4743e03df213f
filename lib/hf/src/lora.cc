// Settings of adapters: ranges, targets, and their JSON.
#include "lora.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace fp8::hf {
namespace {

constexpr std::int64_t kMaxRank = std::int64_t{1} << 16;
constexpr double kMaxAlpha = 1e6;

constexpr std::array kAttention{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"};
constexpr std::array kMlp{"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"};

}  // namespace

double LoraConfig::scaling() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

ExpertNames expert_names(Family family) {
  if (family == Family::mixtral) return {"block_sparse_moe", "w1", "w3", "w2"};
  return {"mlp", "gate_proj", "up_proj", "down_proj"};
}

std::vector<std::string> linear_modules(const ModelConfig& config) {
  const ExpertNames of = expert_names(config.family);
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    for (const char* module : kAttention) names.push_back(layer + module);
    if (!config.is_sparse(i)) {
      for (const char* module : kMlp) names.push_back(layer + module);
      continue;
    }
    const std::string experts = layer + of.block + ".experts.";
    for (std::int64_t e = 0; e < config.experts->count; ++e)
      for (const char* module : {of.gate, of.up}) names.push_back(experts + std::to_string(e) + "." + module);
    for (std::int64_t e = 0; e < config.experts->count; ++e)
      names.push_back(experts + std::to_string(e) + "." + of.down);
  }
  return names;
}

std::array<std::int64_t, 2> linear_extent(const ModelConfig& c, std::string_view module) {
  const std::string_view name = module.substr(module.rfind('.') + 1);
  if (name == "q_proj") return {c.query_size(), c.hidden_size};
  if (name == "k_proj" || name == "v_proj") return {c.key_value_size(), c.hidden_size};
  if (name == "o_proj") return {c.hidden_size, c.query_size()};
  const bool expert = c.experts && module.find(".experts.") != std::string_view::npos;
  const std::int64_t width = expert ? c.experts->intermediate_size : c.intermediate_size;
  if (name == "down_proj" || name == "w2") return {c.hidden_size, width};
  return {width, c.hidden_size};
}

void check_lora(const LoraConfig& lora, const ModelConfig& config, const std::string& name) {
  const auto fail = [&](const std::string& reason) { throw Error(name + ": " + reason); };
  const auto limits = [](const std::string& most) { return " is not from 1 to " + most; };
  if (lora.rank < 1 || lora.rank > kMaxRank)
    fail("rank " + std::to_string(lora.rank) + limits(std::to_string(kMaxRank)));
  if (!(lora.alpha > 0 && lora.alpha <= kMaxAlpha))
    fail("alpha " + format_double(lora.alpha) + " is not above 0 and at most " + format_double(kMaxAlpha));
  if (!(lora.dropout >= 0 && static_cast<float>(lora.dropout) < 1))
    fail("dropout " + format_double(lora.dropout) + (lora.dropout < 1 ? " is 1 in f32" : " is not below 1"));
  if (lora.targets.empty()) fail("has no target module");
  const std::vector<std::string> modules = linear_modules(config);
  auto at = modules.begin();
  for (const std::string& target : lora.targets) {
    const auto found = std::find(at, modules.end(), target);
    if (found == modules.end())
      fail("target module \"" + excerpt(target) +
           (std::find(modules.begin(), at, target) == at ? "\" is no linear of a layer of this model"
                                                         : "\" is not in the order of computation, or named twice"));
    at = found + 1;
  }
}

LoraConfig read_lora_numbers(const Keys& keys) {
  for (const char* needed : {"r", "lora_alpha"})
    if (keys.find(needed) == nullptr) keys.fail("\"" + std::string(needed) + "\" is missing");
  LoraConfig lora;
  lora.rank = keys.integer("r", 0, 1, kMaxRank);
  lora.alpha = keys.number("lora_alpha", 0, 0, kMaxAlpha);
  lora.rslora = keys.boolean("use_rslora", false);
  lora.dropout = keys.number("lora_dropout", 0, 0, 1);
  return lora;
}

LoraConfig parse_lora(const json::Value& value, const ModelConfig& config, const std::string& name) {
  if (!value.is_object()) throw Error(name + ": not an object");
  const Keys keys(value.as_object(), name);
  LoraConfig lora = read_lora_numbers(keys);
  const json::Value* targets = keys.find("target_modules");
  if (targets == nullptr || !targets->is_array()) keys.fail("\"target_modules\" is not an array");
  for (const json::Value& target : targets->as_array()) {
    if (!target.is_string()) keys.fail("\"target_modules\" holds a value that is not text");
    lora.targets.push_back(target.as_string());
  }
  check_lora(lora, config, name);
  return lora;
}

json::Value lora_json(const LoraConfig& lora) {
  return json::object({{"r", lora.rank},
                       {"lora_alpha", lora.alpha},
                       {"use_rslora", lora.rslora},
                       {"lora_dropout", lora.dropout},
                       {"target_modules", json::Array(lora.targets.begin(), lora.targets.end())}});
}

}  // namespace fp8::hf
