// Reading config.json. Defaults are those of transformers' configuration classes; every number is bounded here, so that
// sizes computed from a Config cannot overflow later.
#include "fp8/hf/config.h"

#include <array>
#include <tuple>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "keys.h"
#include "lora.h"

namespace fp8::hf {
namespace {

constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMaxLayers = 10000;
constexpr std::int64_t kMaxHeads = std::int64_t{1} << 16;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 40;
constexpr std::int64_t kMaxTokenId = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMaxParameters = std::int64_t{1} << 50;

// Defaults of transformers for absent keys. Zero: derived from other keys.
struct Defaults {
  Family family;
  std::string_view name;
  std::int64_t vocab, hidden, intermediate, layers, heads, key_value_heads, head_dim, positions;
};

constexpr std::array<Defaults, 4> kFamilies = {{
    {Family::llama, "llama", 32000, 4096, 11008, 32, 32, 0, 0, 2048},
    {Family::mistral, "mistral", 32000, 4096, 14336, 32, 32, 8, 0, 131072},
    {Family::qwen2, "qwen2", 151936, 4096, 22016, 32, 32, 32, 0, 32768},
    {Family::qwen3, "qwen3", 151936, 4096, 22016, 32, 32, 32, 128, 32768},
}};

const Defaults& find_family(const Keys& keys) {
  const std::string type = keys.text("model_type", "");
  if (type.empty()) keys.fail("\"model_type\" is missing");
  const std::string shown = excerpt(type);
  bool experts = type.find("moe") != std::string::npos || type.find("mixtral") != std::string::npos;
  for (const std::string_view key : {"num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok"}) {
    experts = experts || keys.integer(key, 0, 0, kMaxWidth) > 0;
  }
  if (experts) keys.fail("mixture-of-experts models (here " + shown + ") are not supported yet");
  std::string supported;
  for (const Defaults& d : kFamilies) {
    if (d.name == type) return d;
    supported += (supported.empty() ? "" : ", ") + std::string(d.name);
  }
  keys.fail("model_type \"" + shown + "\" is not supported (" + supported + " are)");
}

void refuse_unsupported(const Keys& keys) {
  const std::string activation = keys.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    keys.fail("activation \"" + excerpt(activation) + "\" is not supported (silu is)");
  }
  if (keys.find("quantization_config") != nullptr) {
    keys.fail("\"quantization_config\": quantized weights are not supported; use the original model");
  }
  if (const json::Value* types = keys.find("layer_types")) {
    if (!types->is_array()) keys.fail("\"layer_types\" is not an array");
    for (const json::Value& type : types->as_array()) {
      if (!type.is_string() || type.as_string() != "full_attention") {
        keys.fail("\"layer_types\": only full_attention is supported, found " + excerpt(json::dump(type)));
      }
    }
  }
}

RopeType parse_rope_type(const Keys& keys, const Keys& top) {
  const std::string type = keys.text("rope_type", keys.text("type", "default"));
  if (type == "default") return RopeType::plain;
  if (type == "linear") return RopeType::linear;
  if (type == "llama3") return RopeType::llama3;
  top.fail("rope type \"" + excerpt(type) + "\" is not supported (default, linear and llama3 are)");
}

Rope parse_rope(const Keys& top) {
  const json::Value* found = top.find("rope_parameters");
  const char* key = found != nullptr ? "rope_parameters" : "rope_scaling";
  if (found == nullptr) found = top.find("rope_scaling");
  const json::Object none;
  if (found != nullptr && !found->is_object()) top.fail("\"" + std::string(key) + "\" is not an object");
  const Keys keys(found != nullptr ? found->as_object() : none, top.what() + ": " + key);

  Rope rope;
  rope.type = parse_rope_type(keys, top);
  rope.theta = keys.number("rope_theta", top.number("rope_theta", 10000, 1e-3, 1e18), 1e-3, 1e18);
  const double rotated = keys.number("partial_rotary_factor", top.number("partial_rotary_factor", 1, 0, 1), 0, 1);
  if (rotated != 1) top.fail("\"partial_rotary_factor\" below 1 is not supported");
  if (rope.type == RopeType::plain) return rope;
  if (keys.find("factor") == nullptr) keys.fail("\"factor\" is missing");
  rope.factor = keys.number("factor", 1, 1, 1e6);
  if (rope.type == RopeType::linear) return rope;
  for (const char* needed : {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    if (keys.find(needed) == nullptr) keys.fail("\"" + std::string(needed) + "\" is missing");
  }
  rope.low_freq_factor = keys.number("low_freq_factor", 1, 1e-6, 1e6);
  rope.high_freq_factor = keys.number("high_freq_factor", 4, 1e-6, 1e6);
  if (rope.low_freq_factor >= rope.high_freq_factor) keys.fail("low_freq_factor must be below high_freq_factor");
  rope.original_max_position_embeddings = keys.integer("original_max_position_embeddings", 0, 1, kMaxPositions);
  return rope;
}

void parse_sizes(const Keys& keys, const Defaults& d, ModelConfig& c) {
  c.vocab_size = keys.integer("vocab_size", d.vocab, 1, kMaxWidth);
  c.hidden_size = keys.integer("hidden_size", d.hidden, 1, kMaxWidth);
  c.intermediate_size = keys.integer("intermediate_size", d.intermediate, 1, kMaxWidth);
  c.num_hidden_layers = keys.integer("num_hidden_layers", d.layers, 1, kMaxLayers);
  c.num_attention_heads = keys.integer("num_attention_heads", d.heads, 1, kMaxHeads);
  const bool own = d.key_value_heads != 0 && keys.is_absent("num_key_value_heads");
  c.num_key_value_heads =
      keys.integer("num_key_value_heads", own ? d.key_value_heads : c.num_attention_heads, 1, kMaxHeads);
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    keys.fail("num_key_value_heads " + std::to_string(c.num_key_value_heads) + " does not divide num_attention_heads " +
              std::to_string(c.num_attention_heads));
  }
  if (keys.find("head_dim") == nullptr && (d.head_dim == 0 || !keys.is_absent("head_dim")) &&
      c.hidden_size % c.num_attention_heads != 0) {
    keys.fail("num_attention_heads " + std::to_string(c.num_attention_heads) + " does not divide hidden_size " +
              std::to_string(c.hidden_size) + ", and there is no head_dim");
  }
  const bool default_width = d.head_dim != 0 && keys.is_absent("head_dim");
  c.head_dim =
      keys.integer("head_dim", default_width ? d.head_dim : c.hidden_size / c.num_attention_heads, 1, kMaxWidth);
  if (c.head_dim % 2 != 0) keys.fail("head_dim " + std::to_string(c.head_dim) + " is odd, rope needs pairs");
  if (c.query_size() > kMaxWidth) keys.fail("num_attention_heads x head_dim is above " + std::to_string(kMaxWidth));

  const std::int64_t attention = 2 * c.hidden_size * (c.query_size() + c.key_value_size());
  const std::int64_t mlp = 3 * c.hidden_size * c.intermediate_size;
  const std::int64_t layers = checked_mul(c.num_hidden_layers, attention + mlp, keys.what());
  if (checked_add(layers, 2 * c.vocab_size * c.hidden_size, keys.what()) > kMaxParameters) {
    keys.fail("the model would have more than 2^50 parameters");
  }
}

// The sliding window in tokens, if any layer has one.
std::optional<std::int64_t> parse_sliding_window(const Keys& keys, const ModelConfig& c) {
  if (c.family == Family::llama) return std::nullopt;
  if (c.family != Family::mistral) {
    if (!keys.boolean("use_sliding_window", false) || keys.find("layer_types") != nullptr) return std::nullopt;
    if (keys.integer("max_window_layers", 28, 0, kMaxLayers) >= c.num_hidden_layers) return std::nullopt;
  }
  if (keys.find("sliding_window") == nullptr && !keys.is_absent("sliding_window")) return std::nullopt;
  return keys.integer("sliding_window", 4096, 1, kMaxPositions);
}

void parse_biases(const Keys& keys, ModelConfig& c) {
  const bool attention = keys.boolean("attention_bias", false);
  const bool mlp = keys.boolean("mlp_bias", false);
  if (c.family == Family::llama || c.family == Family::qwen3) c.attention_bias_qkv = c.attention_bias_o = attention;
  if (c.family == Family::llama) c.mlp_bias = mlp;
  if (c.family == Family::qwen2) c.attention_bias_qkv = true;
  c.qk_norm = c.family == Family::qwen3;
}

void parse_special_tokens(const Keys& keys, ModelConfig& c) {
  if (keys.find("bos_token_id") != nullptr) c.bos_token_id = keys.integer("bos_token_id", 0, 0, kMaxTokenId);
  const json::Value* eos = keys.find("eos_token_id");
  if (eos == nullptr) return;
  if (!eos->is_array()) {
    c.eos_token_ids.push_back(keys.integer("eos_token_id", 0, 0, kMaxTokenId));
    return;
  }
  for (const json::Value& id : eos->as_array()) {
    const std::int64_t v = id.is_int() ? id.as_int() : -1;
    if (v < 0 || v > kMaxTokenId) keys.fail("\"eos_token_id\" holds " + excerpt(json::dump(id)) + ", not a token id");
    c.eos_token_ids.push_back(v);
  }
}

}  // namespace

std::string_view name_of(Family family) {
  for (const Defaults& d : kFamilies) {
    if (d.family == family) return d.name;
  }
  throw Error("unknown model family");
}

void ModelConfig::check_sequence_length(std::int64_t tokens) const {
  if (sliding_window && tokens > *sliding_window) {
    throw Error("sequences of " + std::to_string(tokens) + " tokens are longer than the model's sliding window of " +
                std::to_string(*sliding_window) + " tokens, and a sliding window is not supported");
  }
}

std::vector<std::string> defaulted_sizes(const ModelConfig& config) {
  const Keys keys(config.source.as_object(), "config");
  const auto* family =
      std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Defaults& d) { return d.family == config.family; });
  std::vector<std::string> missing;
  const auto check = [&](const char* key, std::int64_t of_family, std::int64_t used) {
    if (of_family != 0 && keys.find(key) == nullptr) missing.push_back(std::string(key) + " " + std::to_string(used));
  };
  check("vocab_size", family->vocab, config.vocab_size);
  check("hidden_size", family->hidden, config.hidden_size);
  check("intermediate_size", family->intermediate, config.intermediate_size);
  check("num_hidden_layers", family->layers, config.num_hidden_layers);
  check("num_attention_heads", family->heads, config.num_attention_heads);
  check("num_key_value_heads", family->key_value_heads, config.num_key_value_heads);
  check("head_dim", family->head_dim, config.head_dim);
  return missing;
}

bool same_model(const ModelConfig& a, const ModelConfig& b) {
  const auto fields = [](const ModelConfig& c) {
    return std::tie(c.family, c.vocab_size, c.hidden_size, c.intermediate_size, c.num_hidden_layers,
                    c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.rms_norm_eps, c.rope,
                    c.max_position_embeddings, c.tie_word_embeddings, c.attention_bias_qkv, c.attention_bias_o,
                    c.mlp_bias, c.qk_norm, c.initializer_range, c.sliding_window, c.bos_token_id, c.eos_token_ids,
                    c.lora);
  };
  return fields(a) == fields(b);
}

ModelConfig parse_config(const json::Value& value, const std::string& name) {
  if (!value.is_object()) throw Error(name + ": not an object but " + std::string(json::type_name(value.type())));
  const Keys keys(value.as_object(), name);
  const Defaults& d = find_family(keys);
  refuse_unsupported(keys);
  ModelConfig c;
  c.family = d.family;
  parse_sizes(keys, d, c);
  c.rms_norm_eps = keys.number("rms_norm_eps", 1e-6, 0, 1);
  c.rope = parse_rope(keys);
  c.max_position_embeddings = keys.integer("max_position_embeddings", d.positions, 1, kMaxPositions);
  c.tie_word_embeddings = keys.boolean("tie_word_embeddings", false);
  parse_biases(keys, c);
  c.initializer_range = keys.number("initializer_range", 0.02, 0, 1000);
  c.sliding_window = parse_sliding_window(keys, c);
  parse_special_tokens(keys, c);
  if (const json::Value* lora = keys.find("lora")) c.lora = parse_lora(*lora, c, name + ": lora");
  c.source = value;
  return c;
}

}  // namespace fp8::hf
