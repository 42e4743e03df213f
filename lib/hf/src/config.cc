// Reading config.json. Defaults are those of transformers' configuration classes; every number is bounded here, so that
// sizes computed from a Config cannot overflow later.
#include "fp8/hf/config.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "defaults.h"
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
constexpr std::int64_t kMaxExperts = 4096;                      // in a layer
constexpr std::int64_t kMaxAllExperts = std::int64_t{1} << 17;  // in all layers: each has three tensors
constexpr std::int64_t kMaxParameters = std::int64_t{1} << 50;

// Model types and keys of mixtures in which some experts have every token.
constexpr std::array<std::string_view, 5> kSharedTypes{"qwen2_moe", "qwen3_next", "deepseek", "deepseek_v2",
                                                       "deepseek_v3"};
constexpr std::array<std::string_view, 3> kSharedKeys{"shared_expert_intermediate_size", "n_shared_experts",
                                                      "num_shared_experts"};

// Throws for experts that have every token, whose sum with the chosen ones no family here computes.
void refuse_shared_experts(const Keys& keys, const std::string& type) {
  std::string reason;
  for (const std::string_view key : kSharedKeys)
    if (keys.integer(key, 0, 0, kMaxWidth) > 0) reason = "\"" + std::string(key) + "\"";
  if (reason.empty() && std::ranges::find(kSharedTypes, type) != kSharedTypes.end())
    reason = "model_type \"" + type + "\"";
  if (!reason.empty()) keys.fail(reason + ": shared experts are not supported (those of mixtral and qwen3_moe are)");
}

const Defaults& find_family(const Keys& keys) {
  const std::string type = keys.text("model_type", "");
  if (type.empty()) keys.fail("\"model_type\" is missing");
  refuse_shared_experts(keys, type);
  std::string supported;
  for (const Defaults& d : kFamilies) {
    if (d.name == type) return d;
    supported += (supported.empty() ? "" : ", ") + std::string(d.name);
  }
  keys.fail("model_type \"" + excerpt(type) + "\" is not supported (" + supported + " are)");
}

void refuse_unsupported(const Keys& keys) {
  const std::string activation = keys.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    keys.fail("activation \"" + excerpt(activation) + "\" is not supported (silu is)");
  }
  if (keys.find("quantization_config") != nullptr) {
    keys.fail("\"quantization_config\": quantized weights are not supported; use the original model");
  }
}

RopeType parse_rope_type(const Keys& keys, const Keys& top) {
  const std::string type = keys.text("rope_type", keys.text("type", "default"));
  if (type == "default") return RopeType::plain;
  if (type == "linear") return RopeType::linear;
  if (type == "llama3") return RopeType::llama3;
  top.fail("rope type \"" + excerpt(type) + "\" is not supported (default, linear and llama3 are)");
}

// The settings in the object `key`, which may be missing, as may its rope_theta.
Rope parse_rope_object(const Keys& top, const char* key, double theta) {
  const json::Value* found = top.find(key);
  const json::Object none;
  if (found != nullptr && !found->is_object()) top.fail("\"" + std::string(key) + "\" is not an object");
  const Keys keys(found != nullptr ? found->as_object() : none, top.what() + ": " + key);
  for (const char* layers : {kFullAttention, kSlidingAttention})
    if (keys.find(layers) != nullptr) keys.fail("settings for each type of layer are not supported");

  Rope rope;
  rope.type = parse_rope_type(keys, top);
  rope.theta = keys.number("rope_theta", theta, 1e-3, 1e18);
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

// transformers 5 reads `rope_parameters`, 4 the other two keys: if a file has both spellings, they must agree.
Rope parse_rope(const Keys& top, const Defaults& d) {
  constexpr const char *kNew = "rope_parameters", *kOld = "rope_scaling", *kTheta = "rope_theta";
  const bool both = top.find(kNew) != nullptr && top.find(kOld) != nullptr;
  const double theta = top.number(kTheta, d.rope_theta, 1e-3, 1e18);
  const Rope rope = parse_rope_object(top, top.find(kNew) != nullptr ? kNew : kOld, theta);
  if (top.find(kTheta) != nullptr && theta != rope.theta)
    top.fail("rope_theta " + format_double(theta) + " differs from that of rope_parameters or rope_scaling, " +
             format_double(rope.theta));
  if (both && parse_rope_object(top, kOld, rope.theta) != rope) top.fail("rope_parameters and rope_scaling differ");
  return rope;
}

bool is_qwen3(Family family) { return family == Family::qwen3 || family == Family::qwen3_moe; }

// Throws for a key of experts in a family that has none.
void refuse_experts(const Keys& keys, std::string_view family) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"})
    if (keys.integer(key, 0, 0, kMaxWidth) > 0)
      keys.fail("\"" + std::string(key) + "\": model_type \"" + std::string(family) +
                "\" has no experts (mixtral and qwen3_moe have)");
}

// The number of experts: `num_local_experts` is Mixtral's name and `num_experts` Qwen's, and each family reads both.
std::int64_t parse_expert_count(const Keys& keys, std::int64_t fallback) {
  constexpr const char *kOne = "num_experts", *kOther = "num_local_experts";
  const std::int64_t one = keys.integer(kOne, fallback, 1, kMaxExperts);
  const std::int64_t other = keys.integer(kOther, one, 1, kMaxExperts);
  if (keys.find(kOne) != nullptr && one != other)
    keys.fail(std::string(kOne) + " " + std::to_string(one) + " and " + kOther + " " + std::to_string(other) +
              " differ");
  return other;
}

// `mlp_only_layers`, ascending.
std::vector<std::int64_t> parse_dense_layers(const Keys& keys, std::int64_t layers) {
  const json::Value* dense = keys.find("mlp_only_layers");
  if (dense == nullptr) return {};
  if (!dense->is_array()) keys.fail("\"mlp_only_layers\" is not an array");
  std::vector<std::int64_t> numbers;
  for (const json::Value& layer : dense->as_array()) {
    if (!layer.is_int() || layer.as_int() < 0 || layer.as_int() >= layers)
      keys.fail("\"mlp_only_layers\" holds " + excerpt(json::dump(layer)) + ", not a layer from 0 to " +
                std::to_string(layers - 1));
    numbers.push_back(layer.as_int());
  }
  std::ranges::sort(numbers);
  const auto twice = std::ranges::unique(numbers);
  numbers.erase(twice.begin(), twice.end());
  return numbers;
}

// The experts of a family that has any, and of no other.
std::optional<ExpertsConfig> parse_experts(const Keys& keys, const Defaults& d, const ModelConfig& c) {
  if (d.experts == 0) {
    refuse_experts(keys, d.name);
    return std::nullopt;
  }
  ExpertsConfig e;
  e.count = parse_expert_count(keys, d.experts);
  e.per_token = keys.integer("num_experts_per_tok", d.experts_per_token, 1, kMaxExperts);
  if (e.per_token > e.count)
    keys.fail("num_experts_per_tok " + std::to_string(e.per_token) + " is above the number of experts, " +
              std::to_string(e.count));
  const bool qwen = c.family == Family::qwen3_moe;
  e.intermediate_size =
      qwen ? keys.integer("moe_intermediate_size", d.expert_intermediate, 1, kMaxWidth) : c.intermediate_size;
  e.normalize = !qwen || keys.boolean("norm_topk_prob", false);
  if (keys.number("router_jitter_noise", 0, 0, 1) != 0)
    keys.fail("\"router_jitter_noise\": noise in the router's input is not supported");
  if (!qwen) return e;
  e.sparse_step = keys.integer("decoder_sparse_step", 1, 1, kMaxLayers);
  e.dense_layers = parse_dense_layers(keys, c.num_hidden_layers);
  return e;
}

// Throws for models of more parameters than numbers of elements are computed for, or of more tensors than a table
// holds.
void check_size(const Keys& keys, const ModelConfig& c) {
  const auto product = [&](std::int64_t a, std::int64_t b) { return checked_mul(a, b, keys.what()); };
  const auto sum = [&](std::int64_t a, std::int64_t b) { return checked_add(a, b, keys.what()); };
  const std::int64_t sparse = c.sparse_layers();
  const std::int64_t attention = 2 * c.hidden_size * (c.query_size() + c.key_value_size());
  std::int64_t size = product(c.num_hidden_layers, attention);
  size = sum(size, product(c.num_hidden_layers - sparse, 3 * c.hidden_size * c.intermediate_size));
  if (c.experts) {
    const std::int64_t expert = 3 * c.hidden_size * c.experts->intermediate_size + c.hidden_size;  // and its router row
    const std::int64_t experts = sparse * c.experts->count;
    if (experts > kMaxAllExperts) keys.fail("the model would have more than 2^17 experts");
    size = sum(size, product(experts, expert));
  }
  if (sum(size, 2 * c.vocab_size * c.hidden_size) > kMaxParameters)
    keys.fail("the model would have more than 2^50 parameters");
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

  c.experts = parse_experts(keys, d, c);
  check_size(keys, c);
}

// Whether `layer_types` names a layer with a sliding window. Throws for other kinds of layers, and for such a list of
// another length than the number of layers.
bool has_sliding_layers(const Keys& keys, const ModelConfig& c) {
  const json::Value* types = keys.find("layer_types");
  if (types == nullptr) return false;
  if (!types->is_array()) keys.fail("\"layer_types\" is not an array");
  bool sliding = false;
  for (const json::Value& type : types->as_array()) {
    const std::string_view name = type.is_string() ? std::string_view(type.as_string()) : "";
    if (name != kFullAttention && name != kSlidingAttention)
      keys.fail("\"layer_types\": only full_attention and sliding_attention are supported, found " +
                excerpt(json::dump(type)));
    sliding = sliding || name == kSlidingAttention;
  }
  if (sliding && std::ssize(types->as_array()) != c.num_hidden_layers)
    keys.fail("\"layer_types\" has " + std::to_string(types->as_array().size()) + " entries for " +
              std::to_string(c.num_hidden_layers) + " layers");
  return sliding;
}

// The sliding window in tokens, if any layer has one; `sliding`: has_sliding_layers().
std::optional<std::int64_t> parse_sliding_window(const Keys& keys, const ModelConfig& c, bool sliding) {
  if (c.family == Family::llama) return std::nullopt;
  const bool qwen = c.family != Family::mistral && c.family != Family::mixtral;
  if (qwen && !keys.boolean("use_sliding_window", false)) return std::nullopt;
  if (qwen && c.family != Family::qwen3_moe && !sliding) {  // Qwen3-MoE has the window in every layer
    if (keys.find("layer_types") != nullptr) return std::nullopt;
    if (keys.integer("max_window_layers", kMaxWindowLayers, 0, kMaxLayers) >= c.num_hidden_layers) return std::nullopt;
  }
  const bool none = c.family == Family::mixtral || !keys.is_absent("sliding_window");
  if (keys.find("sliding_window") == nullptr && none) return std::nullopt;
  return keys.integer("sliding_window", kSlidingWindow, 1, kMaxPositions);
}

void parse_biases(const Keys& keys, ModelConfig& c) {
  const bool attention = keys.boolean("attention_bias", false);
  const bool mlp = keys.boolean("mlp_bias", false);
  if (c.family == Family::llama || is_qwen3(c.family)) c.attention_bias_qkv = c.attention_bias_o = attention;
  if (c.family == Family::llama) c.mlp_bias = mlp;
  if (c.family == Family::qwen2) c.attention_bias_qkv = true;
  c.qk_norm = is_qwen3(c.family);
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

bool ModelConfig::is_sparse(std::int64_t layer) const {
  return experts && (layer + 1) % experts->sparse_step == 0 &&
         !std::ranges::binary_search(experts->dense_layers, layer);
}

std::int64_t ModelConfig::sparse_layers() const {
  std::int64_t sparse = 0;
  for (std::int64_t i = 0; i < num_hidden_layers && experts; ++i) sparse += is_sparse(i) ? 1 : 0;
  return sparse;
}

void ModelConfig::check_sequence_length(std::int64_t tokens) const {
  if (sliding_window && tokens > *sliding_window) {
    throw Error("sequences of " + std::to_string(tokens) + " tokens are longer than the model's sliding window of " +
                std::to_string(*sliding_window) + " tokens, and a sliding window is not supported");
  }
}

bool same_model(const ModelConfig& a, const ModelConfig& b) {
  const auto fields = [](const ModelConfig& c) {
    return std::tie(c.family, c.vocab_size, c.hidden_size, c.intermediate_size, c.num_hidden_layers,
                    c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.rms_norm_eps, c.rope,
                    c.max_position_embeddings, c.tie_word_embeddings, c.attention_bias_qkv, c.attention_bias_o,
                    c.mlp_bias, c.qk_norm, c.initializer_range, c.sliding_window, c.bos_token_id, c.eos_token_ids,
                    c.experts, c.lora);
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
  c.rms_norm_eps = keys.number("rms_norm_eps", d.rms_norm_eps, 0, 1);
  c.rope = parse_rope(keys, d);
  c.max_position_embeddings = keys.integer("max_position_embeddings", d.positions, 1, kMaxPositions);
  c.tie_word_embeddings = keys.boolean("tie_word_embeddings", false);
  parse_biases(keys, c);
  c.initializer_range = keys.number("initializer_range", 0.02, 0, 1000);
  const bool sliding = has_sliding_layers(keys, c);
  c.sliding_window = parse_sliding_window(keys, c, sliding);
  if (sliding && !c.sliding_window)
    keys.fail("\"layer_types\" has sliding_attention, but the other keys of " + std::string(d.name) +
              " give no sliding window");
  parse_special_tokens(keys, c);
  if (const json::Value* lora = keys.find("lora")) c.lora = parse_lora(*lora, c, name + ": lora");
  c.source = value;
  return c;
}

}  // namespace fp8::hf
