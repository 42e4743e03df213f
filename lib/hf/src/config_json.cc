// Writes a configuration with the keys of transformers 5, and adds those of transformers 4.
#include <algorithm>
#include <array>

#include "defaults.h"
#include "fp8/hf/config.h"
#include "lora.h"

namespace fp8::hf {
namespace {

json::Value rope_json(const ModelConfig& c) {
  // Unknown keys are kept: they change no arithmetic, since parse_config refuses those that do.
  json::Object out;
  if (c.source.is_object()) {
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
      const json::Value* v = c.source.as_object().find(key);
      if (v == nullptr || !v->is_object()) continue;
      out = v->as_object();
      break;
    }
  }
  for (const char* key :
       {"type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    out.erase(key);
  }
  static constexpr std::array<const char*, 3> kNames = {"default", "linear", "llama3"};
  out.set("rope_type", kNames.at(static_cast<std::size_t>(c.rope.type)));
  out.set("rope_theta", c.rope.theta);
  if (c.rope.type != RopeType::plain) out.set("factor", c.rope.factor);
  if (c.rope.type == RopeType::llama3) {
    out.set("low_freq_factor", c.rope.low_freq_factor);
    out.set("high_freq_factor", c.rope.high_freq_factor);
    out.set("original_max_position_embeddings", c.rope.original_max_position_embeddings);
  }
  return out;
}

// The first layer with a sliding window, for releases of transformers without `layer_types`.
std::int64_t max_window_layers(const ModelConfig& c, const json::Object& out) {
  if (const json::Value* types = out.find("layer_types"); types != nullptr && types->is_array())
    return std::ranges::find(types->as_array(), json::Value(kSlidingAttention)) - types->as_array().begin();
  return kMaxWindowLayers < c.num_hidden_layers ? kMaxWindowLayers : 0;
}

void set_family_keys(const ModelConfig& c, json::Object& out) {
  if (c.family == Family::llama || c.family == Family::qwen3 || c.family == Family::qwen3_moe)
    out.set("attention_bias", c.attention_bias_qkv);
  // parse_config accepts a list of another length if no layer slides.
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  const json::Value* types = out.find("layer_types");
  if (types != nullptr && types->is_array() && types->as_array().size() != layers)
    out.set("layer_types", json::Array(layers, kFullAttention));
  if (c.family == Family::llama) {
    out.set("mlp_bias", c.mlp_bias);
    return;
  }
  out.set("sliding_window", c.sliding_window ? json::Value(*c.sliding_window) : json::Value());
  if (c.family == Family::mistral || c.family == Family::mixtral) return;
  out.set("use_sliding_window", c.sliding_window.has_value());
  if (c.sliding_window && !out.contains("max_window_layers")) out.set("max_window_layers", max_window_layers(c, out));
}

// Under the family's own names; a key in another spelling is dropped. transformers 5 also writes num_local_experts for
// Qwen3-MoE, but reads num_experts, which servers and transformers 4 need.
void set_experts(const ModelConfig& c, json::Object& out) {
  if (!c.experts) return;
  const bool qwen = c.family == Family::qwen3_moe;
  out.erase(qwen ? "num_local_experts" : "num_experts");
  out.set(qwen ? "num_experts" : "num_local_experts", c.experts->count);
  out.set("num_experts_per_tok", c.experts->per_token);
  if (!qwen) return;
  out.set("moe_intermediate_size", c.experts->intermediate_size);
  out.set("norm_topk_prob", c.experts->normalize);
  out.set("decoder_sparse_step", c.experts->sparse_step);
  out.set("mlp_only_layers", json::Array(c.experts->dense_layers.begin(), c.experts->dense_layers.end()));
}

json::Value eos_json(const ModelConfig& c) {
  if (c.eos_token_ids.empty()) return {};
  const bool array = c.source.is_object() && c.source.as_object().contains("eos_token_id") &&
                     c.source.as_object().at("eos_token_id").is_array();
  if (c.eos_token_ids.size() == 1 && !array) return c.eos_token_ids.front();
  return json::Array(c.eos_token_ids.begin(), c.eos_token_ids.end());
}

const char* architecture(Family family) {
  switch (family) {
    case Family::llama:
      return "LlamaForCausalLM";
    case Family::mistral:
      return "MistralForCausalLM";
    case Family::qwen2:
      return "Qwen2ForCausalLM";
    case Family::qwen3:
      return "Qwen3ForCausalLM";
    case Family::mixtral:
      return "MixtralForCausalLM";
    case Family::qwen3_moe:
      return "Qwen3MoeForCausalLM";
  }
  return "";
}

}  // namespace

json::Value to_json(const ModelConfig& c) {
  json::Object out = c.source.is_object() ? c.source.as_object() : json::Object();
  if (const json::Value* type = out.find("torch_dtype")) {
    if (!out.contains("dtype")) out.set("dtype", json::Value(*type));
  }
  for (const char* old : {"torch_dtype", "rope_theta", "rope_scaling"}) out.erase(old);

  if (!out.contains("architectures")) out.set("architectures", json::Array{architecture(c.family)});
  out.set("model_type", name_of(c.family));
  out.set("vocab_size", c.vocab_size);
  out.set("hidden_size", c.hidden_size);
  out.set("intermediate_size", c.intermediate_size);
  out.set("num_hidden_layers", c.num_hidden_layers);
  out.set("num_attention_heads", c.num_attention_heads);
  out.set("num_key_value_heads", c.num_key_value_heads);
  out.set("head_dim", c.head_dim);
  out.set("hidden_act", "silu");
  out.set("rms_norm_eps", c.rms_norm_eps);
  out.set("rope_parameters", rope_json(c));
  out.set("max_position_embeddings", c.max_position_embeddings);
  out.set("tie_word_embeddings", c.tie_word_embeddings);
  out.set("initializer_range", c.initializer_range);
  out.set("bos_token_id", c.bos_token_id ? json::Value(*c.bos_token_id) : json::Value());
  out.set("eos_token_id", eos_json(c));
  set_family_keys(c, out);
  set_experts(c, out);
  out.erase("lora");
  if (c.lora) out.set("lora", lora_json(*c.lora));
  return out;
}

void add_version_4_keys(json::Object& config) {
  if (const json::Value* type = config.find("dtype")) config.set("torch_dtype", json::Value(*type));
  json::Object rope = config.at("rope_parameters").as_object();
  config.set("rope_theta", json::Value(rope.at("rope_theta")));
  rope.erase("rope_theta");
  rope.erase("partial_rotary_factor");  // 1
  const bool plain = rope.at("rope_type") == json::Value("default");
  // Before 4.43 transformers knows no other name than `type`, and no other key than these two; later versions read it.
  if (rope.at("rope_type") == json::Value("linear"))
    rope = json::object({{"type", "linear"}, {"factor", json::Value(rope.at("factor"))}}).as_object();
  config.set("rope_scaling", plain ? json::Value() : json::Value(std::move(rope)));
  for (const auto& [name, other] :
       {std::pair{"num_experts", "num_local_experts"}, {"num_local_experts", "num_experts"}})
    if (const json::Value* count = config.find(name)) config.set(other, json::Value(*count));
  config.set("transformers_version", "5.0.0");
}

}  // namespace fp8::hf
