/// A decoder's configuration: Hugging Face's config.json, with the keys of transformers 4 or 5, read into one canonical
/// struct, every number checked, and written back with the keys of transformers 5. The file is untrusted: unsupported
/// settings that change the arithmetic are refused by name. The parameter table is in model, the weights in
/// safetensors.h. Source: transformers 5.23, configuration_{llama,mistral,qwen2,qwen3,mixtral,qwen3_moe}.py and
/// modeling_rope_utils.py; 4.45 and, for Qwen3-MoE, 4.51 for the old keys.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::hf {

/// Supported model families; `model_type` in config.json.
enum class Family : std::uint8_t { llama, mistral, qwen2, qwen3, mixtral, qwen3_moe };

/// `model_type` of a family: llama, mistral, qwen2, qwen3, mixtral, qwen3_moe.
std::string_view name_of(Family family);

/// How rotation angles are computed from positions.
enum class RopeType : std::uint8_t { plain, linear, llama3 };

/// Rotary embedding. plain uses only `theta`, linear also `factor`, llama3 all fields.
struct Rope {
  RopeType type = RopeType::plain;                    ///< `rope_type`: default, linear, llama3
  double theta = 10000;                               ///< base of the frequencies
  double factor = 1;                                  ///< scaling factor of the context length
  double low_freq_factor = 1;                         ///< wavelengths above original/low are scaled by `factor`
  double high_freq_factor = 4;                        ///< wavelengths below original/high are unchanged
  std::int64_t original_max_position_embeddings = 0;  ///< context length before scaling, tokens

  bool operator==(const Rope&) const = default;  ///< equal in every field
};

/// Adapters beside linears, LoRA: y = W x + scaling() B (A x), A [rank, in], B [out, rank]. Only A and B are trained.
/// Key `lora` of a checkpoint's /config; a Hugging Face config.json has none. Source: Hu et al., arXiv:2106.09685;
/// PEFT.
struct LoraConfig {
  std::int64_t rank = 8;               ///< `r`: rows of A and columns of B
  double alpha = 16;                   ///< `lora_alpha`
  bool rslora = false;                 ///< `use_rslora`: divide alpha by the square root of the rank
  double dropout = 0;                  ///< `lora_dropout`: probability that training leaves out an input of A
  std::vector<std::string> targets{};  ///< `target_modules`: full names of linears, in the order of computation

  /// alpha / rank, or alpha / sqrt(rank) with rslora.
  double scaling() const;
  bool operator==(const LoraConfig&) const = default;  ///< equal in every field
};

/// Names of the tensors of experts in a layer: BLOCK.gate is the router, BLOCK.experts.E.GATE and so on are the
/// linears. Mixtral has block_sparse_moe with w1, w3 and w2, Qwen3-MoE mlp with gate_proj, up_proj and down_proj.
struct ExpertNames {
  const char *block, *gate, *up, *down;
};

/// The names of a family with experts.
ExpertNames expert_names(Family family);

/// A mixture of experts: in its layers a router chooses `per_token` of `count` MLPs for each token.
struct ExpertsConfig {
  std::int64_t count = 8;              ///< E: `num_local_experts` or `num_experts`
  std::int64_t per_token = 2;          ///< k: `num_experts_per_tok`, at most `count`
  std::int64_t intermediate_size = 0;  ///< width inside an expert: `moe_intermediate_size`, or `intermediate_size`
  bool normalize = true;               ///< the weights of a token's experts are divided by their sum: `norm_topk_prob`
  std::int64_t sparse_step = 1;        ///< `decoder_sparse_step`: layer i is sparse if it divides i + 1
  std::vector<std::int64_t> dense_layers{};               ///< `mlp_only_layers`, ascending: layers that have one MLP
  bool operator==(const ExpertsConfig&) const = default;  ///< equal in every field
};

/// The parameters of a model's arithmetic, and the object it was read from.
struct ModelConfig {
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
  std::int64_t max_position_embeddings = 2048;  ///< context length of the original training, tokens; not a limit here
  bool tie_word_embeddings = false;             ///< lm_head is the embedding
  bool attention_bias_qkv = false;              ///< q, k and v projections have biases
  bool attention_bias_o = false;                ///< the output projection has a bias
  bool mlp_bias = false;                        ///< gate, up and down have biases
  bool qk_norm = false;                         ///< q and k are normalized over head_dim (Qwen3)
  double initializer_range = 0.02;              ///< standard deviation of initial weights
  std::optional<std::int64_t> sliding_window;   ///< tokens that a token attends to, itself included
  std::optional<std::int64_t> bos_token_id;     ///< first token of a text
  std::vector<std::int64_t> eos_token_ids;      ///< last token of a text; may be empty
  std::optional<ExpertsConfig> experts;         ///< experts, if the family has any
  std::optional<LoraConfig> lora;               ///< adapters, if the model has any
  json::Value source;                           ///< the object read, so that export keeps every key

  /// Width of all query heads together.
  std::int64_t query_size() const { return num_attention_heads * head_dim; }
  /// Width of all key (or value) heads together.
  std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }
  /// Whether a layer, counted from 0, has experts instead of one MLP.
  bool is_sparse(std::int64_t layer) const;
  /// Number of layers with experts.
  std::int64_t sparse_layers() const;
  /// Throws Error when `tokens` > sliding_window: attention is computed over the whole sequence.
  void check_sequence_length(std::int64_t tokens) const;
};

/// Whether two configurations compute the same function: all fields but `source`.
bool same_model(const ModelConfig& a, const ModelConfig& b);

/// Reads config.json's object. Messages begin with `name`. Throws Error for a key of the wrong type or out of range,
/// two spellings of a setting that differ, shared experts, an unknown model_type, and unsupported settings that change
/// the arithmetic.
ModelConfig parse_config(const json::Value& value, const std::string& name);

/// Keys that parse_config reads and that are missing in config.source, so that the family's default is used: each as
/// "hidden_size 4096". Values derived from other keys, as head_dim of most families, and the ids of tokens, which have
/// no default, are not listed.
std::vector<std::string> defaulted_keys(const ModelConfig& config);

/// The list of defaulted_keys() as "lacks keys, defaults of mixtral are used: num_experts_per_tok 2"; empty if no key
/// is missing.
std::string defaults_note(const ModelConfig& config);

/// A sentence for each setting of config.source that changes training in transformers and that no tool reads: a loss
/// that balances experts (`output_router_logits`), with the factor that gives the same size here, and
/// `attention_dropout`.
std::vector<std::string> training_notes(const ModelConfig& config);

/// The configuration with the keys of transformers 5: `source` with the known keys replaced. parse_config reads the
/// result back to the same model.
json::Value to_json(const ModelConfig& config);

/// Adds to the object of to_json() what transformers 4 reads instead, so that both versions compute the same model:
/// `torch_dtype`, `rope_theta` and `rope_scaling` beside `dtype` and `rope_parameters`, and the number of experts under
/// both names. A linear `rope_scaling` has `type` and `factor` alone, the only form before 4.43. Sets
/// `transformers_version` to 5.0.0: under an older one, either version warns of a defect in tokenizers
/// of Mistral, whose files it does not read as they are. parse_config reads the result to the same model.
/// Source: transformers 4.57.6 and 5.23, configuration_utils.py, modeling_rope_utils.py and the tokenizers' base class.
void add_version_4_keys(json::Object& config);

/// Full names of the linears of all layers in the order of computation: model.layers.0.self_attn.q_proj and so on. The
/// LM head is not among them.
std::vector<std::string> linear_modules(const ModelConfig& config);

/// Rows and columns of a linear's weight, {out, in}; `module` ends as those of linear_modules() do.
std::array<std::int64_t, 2> linear_extent(const ModelConfig& config, std::string_view module);

/// Throws Error `name: reason` unless rank, alpha and dropout are in their ranges, and the targets are linears of the
/// model, at least one, in the order of linear_modules().
void check_lora(const LoraConfig& lora, const ModelConfig& config, const std::string& name);

/// Frequencies of the head_dim / 2 rotations, each a float32 value computed in float32 as in transformers.
std::vector<double> rope_inv_freq(const ModelConfig& config);

}  // namespace fp8::hf
