// What a config.json leaves to defaults, and which of its settings for training transformers alone applies.
#include <algorithm>

#include "defaults.h"
#include "fp8/base/text.h"
#include "fp8/hf/config.h"
#include "keys.h"

namespace fp8::hf {
namespace {

const Defaults& defaults_of(Family family) { return *std::ranges::find(kFamilies, family, &Defaults::family); }

// Keys that are missing, each with the value that is used.
class Missing {
 public:
  explicit Missing(const Keys& keys) : keys_(keys) {}
  void check(const char* key, const std::string& used) {
    if (keys_.find(key) == nullptr) list_.push_back(std::string(key) + " " + used);
  }
  void check(const char* key, const char* used) { check(key, std::string(used)); }
  void check(const char* key, std::int64_t used) { check(key, std::to_string(used)); }
  void check(const char* key, bool used) { check(key, used ? "true" : "false"); }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  const Keys& keys_;
  std::vector<std::string> list_;
};

void check_experts(const Keys& keys, const ModelConfig& c, Missing& missing) {
  const bool qwen = c.family == Family::qwen3_moe;
  const char *own = qwen ? "num_experts" : "num_local_experts", *other = qwen ? "num_local_experts" : "num_experts";
  if (keys.find(other) == nullptr) missing.check(own, c.experts->count);
  missing.check("num_experts_per_tok", c.experts->per_token);
  if (!qwen) return;
  missing.check("moe_intermediate_size", c.experts->intermediate_size);
  missing.check("norm_topk_prob", c.experts->normalize);
  missing.check("decoder_sparse_step", c.experts->sparse_step);
  missing.check("mlp_only_layers", "[]");
}

// Keys that a family has if it has biases by choice, or windows.
void check_biases_and_windows(const Keys& keys, const ModelConfig& c, Missing& missing) {
  const bool dense_qwen = c.family == Family::qwen2 || c.family == Family::qwen3;
  if (c.family != Family::mistral && c.family != Family::mixtral && c.family != Family::qwen2)
    missing.check("attention_bias", c.attention_bias_qkv);
  if (c.family == Family::llama) return missing.check("mlp_bias", c.mlp_bias);
  if (c.family == Family::mixtral) return;
  const bool slides = c.family == Family::mistral || keys.boolean("use_sliding_window", false);
  if (c.family != Family::mistral) missing.check("use_sliding_window", slides);
  if (slides && keys.is_absent("sliding_window")) missing.check("sliding_window", kSlidingWindow);
  if (slides && dense_qwen && keys.find("layer_types") == nullptr) missing.check("max_window_layers", kMaxWindowLayers);
}

// rope_theta is in an object of its own since transformers 5.
bool has_theta(const Keys& keys) {
  if (keys.find("rope_theta") != nullptr) return true;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json::Value* rope = keys.find(key);
    if (rope != nullptr) return rope->is_object() && Keys(rope->as_object(), key).find("rope_theta") != nullptr;
  }
  return false;
}

// The value of a key that parse_config() does not read, or `fallback` if it is no number.
double number_or(const Keys& keys, std::string_view key, double fallback) {
  const json::Value* value = keys.find(key);
  return value != nullptr && value->is_number() ? value->as_double() : fallback;
}

}  // namespace

std::vector<std::string> defaulted_keys(const ModelConfig& config) {
  const Keys keys(config.source.as_object(), "config");
  const Defaults& family = defaults_of(config.family);
  Missing missing(keys);
  missing.check("vocab_size", config.vocab_size);
  missing.check("hidden_size", config.hidden_size);
  missing.check("intermediate_size", config.intermediate_size);
  missing.check("num_hidden_layers", config.num_hidden_layers);
  missing.check("num_attention_heads", config.num_attention_heads);
  // A null is not the default but derived from the other sizes.
  if (family.key_value_heads != 0 && keys.is_absent("num_key_value_heads"))
    missing.check("num_key_value_heads", config.num_key_value_heads);
  if (family.head_dim != 0 && keys.is_absent("head_dim")) missing.check("head_dim", config.head_dim);
  if (config.experts) check_experts(keys, config, missing);
  missing.check("hidden_act", "silu");
  missing.check("rms_norm_eps", format_double(config.rms_norm_eps));
  if (!has_theta(keys)) missing.check("rope_theta", format_double(config.rope.theta));
  missing.check("max_position_embeddings", config.max_position_embeddings);
  missing.check("tie_word_embeddings", config.tie_word_embeddings);
  missing.check("initializer_range", format_double(config.initializer_range));
  check_biases_and_windows(keys, config, missing);
  return missing.take();
}

std::string defaults_note(const ModelConfig& config) {
  std::string list;
  for (const std::string& key : defaulted_keys(config)) list += (list.empty() ? "" : ", ") + key;
  return list.empty() ? "" : "lacks keys, defaults of " + std::string(name_of(config.family)) + " are used: " + list;
}

std::vector<std::string> training_notes(const ModelConfig& config) {
  std::vector<std::string> notes;
  const Keys keys(config.source.as_object(), "config");
  constexpr double kCoefficient = 0.001;  // default of both families
  const double coefficient = number_or(keys, "router_aux_loss_coef", kCoefficient);
  const json::Value* logits = keys.find("output_router_logits");
  const std::int64_t layers = config.sparse_layers();
  if (layers > 0 && coefficient > 0 && logits != nullptr && *logits == json::Value(true))
    notes.push_back(
        "with output_router_logits transformers adds its balancing loss in training, with coefficient " +
        format_double(coefficient) + "; fp8-step adds one of the same size with --aux-loss " +
        format_short(coefficient * static_cast<double>(config.experts->per_token) / static_cast<double>(layers), 3));
  if (const double dropout = number_or(keys, "attention_dropout", 0); dropout > 0)
    notes.push_back("attention_dropout " + format_double(dropout) +
                    " is ignored: training here has no dropout of attention");
  return notes;
}

}  // namespace fp8::hf
