/// A decoder's configuration: Hugging Face's config.json read in the spellings of transformers v4 and v5 into one
/// canonical struct, every number checked, and written back in the v5 spelling. Not the parameter table (model) and not
/// the weights (safetensors.h). A file is untrusted: what changes the arithmetic and is not supported is refused by
/// name. Source: transformers 5.23, configuration_{llama,mistral,qwen2,qwen3}.py and modeling_rope_utils.py; 4.45 for
/// the old keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::hf {

/// Model families that can be read; `model_type` in config.json.
enum class Family : std::uint8_t { llama, mistral, qwen2, qwen3 };

/// `model_type` of a family: llama, mistral, qwen2, qwen3.
std::string_view name_of(Family family);

/// How positions become angles.
enum class RopeType : std::uint8_t { plain, linear, llama3 };

/// Rotary embedding. Only `theta` counts for plain, `factor` too for linear, all for llama3.
struct Rope {
  RopeType type = RopeType::plain;                    ///< `rope_type`: default, linear, llama3
  double theta = 10000;                               ///< base of the frequencies
  double factor = 1;                                  ///< the context is stretched by this
  double low_freq_factor = 1;                         ///< wavelengths above original/low are stretched in full
  double high_freq_factor = 4;                        ///< wavelengths below original/high are left alone
  std::int64_t original_max_position_embeddings = 0;  ///< context before stretching, tokens

  bool operator==(const Rope&) const = default;  ///< equal in every field
};

/// What fixes the arithmetic of a model, plus the object it was read from.
struct Config {
  Family family = Family::llama;                ///< `model_type`
  std::int64_t vocab_size = 0;                  ///< V: rows of the embedding
  std::int64_t hidden_size = 0;                 ///< C: width of the residual stream
  std::int64_t intermediate_size = 0;           ///< width inside the MLP
  std::int64_t num_hidden_layers = 0;           ///< L: decoder layers
  std::int64_t num_attention_heads = 0;         ///< query heads
  std::int64_t num_key_value_heads = 0;         ///< key and value heads; divides num_attention_heads
  std::int64_t head_dim = 0;                    ///< width of a head, even; heads x head_dim need not be hidden_size
  double rms_norm_eps = 1e-6;                   ///< added to the mean square
  Rope rope;                                    ///< rotary embedding
  std::int64_t max_position_embeddings = 2048;  ///< context the model was made for, tokens; not a limit here
  bool tie_word_embeddings = false;             ///< lm_head is the embedding
  bool attention_bias_qkv = false;              ///< q, k and v projections have biases
  bool attention_bias_o = false;                ///< the output projection has one
  bool mlp_bias = false;                        ///< gate, up and down have biases
  bool qk_norm = false;                         ///< q and k pass a norm over head_dim (Qwen3)
  double initializer_range = 0.02;              ///< standard deviation of fresh weights
  std::optional<std::int64_t> sliding_window;   ///< tokens a token may look back on, itself included
  std::optional<std::int64_t> bos_token_id;     ///< begins a text
  std::vector<std::int64_t> eos_token_ids;      ///< end a text; may be empty
  json::Value source;                           ///< the object read, so that no key is lost on export

  /// Width of all query heads together.
  std::int64_t query_size() const { return num_attention_heads * head_dim; }
  /// Width of all key (or value) heads together.
  std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }
  /// Throws Error when `tokens` > sliding_window: attention is computed over the whole sequence.
  void check_sequence_length(std::int64_t tokens) const;
};

/// Whether two configurations compute the same function: all fields but `source`.
bool same_model(const Config& a, const Config& b);

/// Reads config.json's object. `name` begins every message. Throws Error for a key of the wrong type or out of range, a
/// mixture of experts, an unknown model_type, and settings that change the arithmetic and are not supported.
Config parse_config(const json::Value& value, const std::string& name);

/// The configuration under Hugging Face's keys, v5 spelling: `source` with the known keys replaced. parse_config reads
/// it back to the same model.
json::Value to_json(const Config& config);

/// Frequencies of the head_dim / 2 rotations, each a float32 value computed in float32 as transformers does.
std::vector<double> rope_inv_freq(const Config& config);

}  // namespace fp8::hf
