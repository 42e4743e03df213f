/// A small model with experts, and the weights that a store prepares for them.
#pragma once

#include "small_model.h"

namespace fp8::test {

/// Qwen3-MoE with linears that are all eligible for FP8: three experts in the first and the last of three layers, whose
/// rows no number of ranks from 2 on divides evenly.
inline hf::ModelConfig small_mixture() {
  const std::string text = R"({"model_type": "qwen3_moe", "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 48, "moe_intermediate_size": 16, "num_experts": 3, "num_experts_per_tok": 2,
    "mlp_only_layers": [1], "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 2,
    "max_position_embeddings": 64, "tie_word_embeddings": false})";
  return hf::parse_config(json::parse(text, "small"), "small");
}

/// The small mixture with adapters of rank 4 on attention, on some linears of some experts, and on all of one.
inline hf::ModelConfig small_mixture_with_adapters() {
  hf::ModelConfig config = small_mixture();
  config.lora = hf::LoraConfig{4, 8, false, 0, {}};
  const std::string first = "model.layers.0.", last = "model.layers.2.", expert = "mlp.experts.";
  config.lora->targets = {first + "self_attn.q_proj",    first + expert + "0.up_proj",   first + expert + "2.gate_proj",
                          first + expert + "2.up_proj",  first + expert + "1.down_proj", "model.layers.1.mlp.down_proj",
                          last + expert + "1.gate_proj", last + expert + "0.down_proj",  last + expert + "1.down_proj",
                          last + expert + "2.down_proj"};
  return config;
}

/// Whether the ranks of a store with this number in the group that shares experts have a parameter.
inline bool has_parameter(const shard::ParameterStore& store, const model::Parameter& p, int rank) {
  const shard::RowRange experts = shard::rows_of(3, rank, store.mesh().experts().size());
  return p.expert < 0 || (p.expert >= experts.begin && p.expert < experts.end);
}
/// Whether this rank has it.
inline bool has_parameter(const shard::ParameterStore& store, const model::Parameter& p) {
  return has_parameter(store, p, store.mesh().experts().rank());
}

/// The linear of a matmul's parameter that this rank has.
inline const linear::Weight& weight_of(const shard::ParameterStore& store, const model::UnitWeights& w,
                                       const model::Parameter& p) {
  if (p.expert < 0) return w.of(p.slot);
  const auto expert = static_cast<std::size_t>(p.expert - store.layout().experts().begin);
  return p.slot == model::Slot::experts_gate_up ? w.experts_gate_up.at(expert) : w.experts_down.at(expert);
}

/// All linears of a unit: those of slots, then those of experts.
inline std::vector<const linear::Weight*> linears_of(const model::UnitWeights& w) {
  std::vector<const linear::Weight*> all;
  for (const linear::Weight& each : w.matmul) all.push_back(&each);
  for (const linear::Weight& each : w.experts_gate_up) all.push_back(&each);
  for (const linear::Weight& each : w.experts_down) all.push_back(&each);
  return all;
}

/// The first row of a matmul's parameter in its linear: slot_row, from the first row of its expert.
inline std::int64_t linear_row(const std::vector<model::Parameter>& table, const model::Parameter& p) {
  for (const model::Parameter& other : table)
    if (other.unit == p.unit && other.slot == p.slot && other.expert == p.expert) return p.slot_row - other.slot_row;
  throw Error("no such parameter");
}

/// The first row of a parameter in the slot's whole matrix on this rank.
inline std::int64_t held_row(const shard::ParameterStore& store, const model::Parameter& p) {
  for (const model::Parameter& other : store.table())
    if (other.unit == p.unit && other.slot == p.slot && has_parameter(store, other)) return p.slot_row - other.slot_row;
  throw Error("no such parameter");
}

}  // namespace fp8::test
