// Reading presets, and changing keys of a configuration from the command line.
#include "fp8/model/presets.h"

#include <algorithm>
#include <array>

#include "fp8/base/error.h"
#include "fp8/base/share.h"
#include "fp8/json/json.h"

namespace fp8::model {
namespace {

constexpr json::Limits kConfigLimits{.max_depth = 16, .max_bytes = std::size_t{1} << 24U};

// Keys that hf::parse_config reads, as in transformers 5; missing keys have defaults.
constexpr std::array<std::string_view, 31> kKnownKeys = {"model_type",
                                                         "vocab_size",
                                                         "hidden_size",
                                                         "intermediate_size",
                                                         "num_hidden_layers",
                                                         "num_attention_heads",
                                                         "num_key_value_heads",
                                                         "head_dim",
                                                         "hidden_act",
                                                         "rms_norm_eps",
                                                         "rope_parameters.rope_type",
                                                         "rope_parameters.rope_theta",
                                                         "rope_parameters.factor",
                                                         "rope_parameters.low_freq_factor",
                                                         "rope_parameters.high_freq_factor",
                                                         "rope_parameters.original_max_position_embeddings",
                                                         "max_position_embeddings",
                                                         "tie_word_embeddings",
                                                         "attention_bias",
                                                         "mlp_bias",
                                                         "initializer_range",
                                                         "sliding_window",
                                                         "num_local_experts",
                                                         "num_experts",
                                                         "num_experts_per_tok",
                                                         "moe_intermediate_size",
                                                         "norm_topk_prob",
                                                         "decoder_sparse_step",
                                                         "mlp_only_layers",
                                                         "bos_token_id",
                                                         "eos_token_id"};

bool known(std::string_view key) { return std::find(kKnownKeys.begin(), kKnownKeys.end(), key) != kKnownKeys.end(); }

json::Value value_of(std::string_view text) {
  try {
    return json::parse(text, "value", {.max_depth = 16, .max_bytes = std::size_t{1} << 20U});
  } catch (const Error&) {
    return json::Value(text);
  }
}

}  // namespace

std::vector<std::string> preset_names() { return share_names("presets", ".json"); }

std::string model_config_file(const std::string& preset_or_path) {
  return share_file("presets", "preset", preset_or_path);
}

json::Value read_model_config(const std::string& preset_or_path) {
  return json::parse_object_file(model_config_file(preset_or_path), "the configuration of a model", kConfigLimits);
}

void set_config_key(json::Value& config, std::string_view assignment) {
  const std::size_t equal = assignment.find('=');
  const std::string what(assignment);
  if (equal == std::string_view::npos || equal == 0) throw Error(what + ": expected KEY=VALUE");
  if (!config.is_object()) throw Error(what + ": the configuration is not a JSON object");
  const std::string_view key = assignment.substr(0, equal);
  const std::size_t dot = key.find('.');
  const std::string_view outer = key.substr(0, dot);
  json::Object& object = config.as_object();
  if (dot == std::string_view::npos) {
    if (!known(key) && !object.contains(key)) throw Error(what + ": no such key in the configuration");
    object.set(key, value_of(assignment.substr(equal + 1)));
    return;
  }
  json::Value* inner = object.find(outer);
  const std::string_view rest = key.substr(dot + 1);
  const bool has = inner != nullptr && inner->is_object() && inner->as_object().contains(rest);
  if (!known(key) && !has) throw Error(what + ": no such key in the configuration");
  if (inner == nullptr || inner->is_null()) inner = &object.set(outer, json::Value(json::Object()));
  if (!inner->is_object()) throw Error(what + ": " + std::string(outer) + " is not an object");
  inner->as_object().set(rest, value_of(assignment.substr(equal + 1)));
}

}  // namespace fp8::model
