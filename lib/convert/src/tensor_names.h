// Names of tensors in other systems. Private to this crate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fp8/convert/tensor_set.h"

namespace fp8::convert {

// How a tensor of another system holds tensors of Hugging Face.
enum class Layout : std::uint8_t {
  same,         // it is one
  interleaved,  // one with its rows in the interleaved rotary order
  vocabulary,   // one that rows of zeros may follow
  experts,      // [experts, out, in]
  pairs,        // [experts, out, in], of which the first half of out is gate and the second up
  qkv,          // for each key/value head: its query heads, the key, the value
  gate_up,      // the rows of gate, then those of up
};

// A name of another system as Hugging Face has it.
struct Translation {
  std::string name;  // has {} for what names one of several tensors: the number of an expert, "q", "gate"
  Layout layout = Layout::same;
};

// Without what torch.compile, FSDP1, activation checkpointing and DDP add to names.
std::string without_wrappers(std::string_view name);

// The name under which tensors are matched: without_wrappers(), without what PEFT adds, and experts as Qwen3-MoE names
// them (mlp.experts.0.gate_proj, which Mixtral calls block_sparse_moe.experts.0.w1).
std::string key_of(std::string_view name);

// Nothing if the system has no such name.
//   huggingface  the experts of a layer in one tensor, under every system, as in memory of transformers 5.23.
//
//   torchtitan  models of Llama 3, Qwen3 and their experts. Source: torchtitan, models/llama3/state_dict_adapter.py and
//               models/qwen3/state_dict_adapter.py.
//
//   megatron    GPTModel without experts, in the Transformer Engine and the local layer spec. Source: Megatron-LM,
//               core/models/gpt/gpt_layer_specs.py and core/transformer/attention.py; Megatron-Bridge,
//               models/conversion/param_mapping.py (split_qkv_weights).
std::optional<Translation> translate(std::string_view name, TensorNames names);

// Whether a tensor has a name of that system, other than Hugging Face's for the same tensor.
bool is_name_of(std::string_view name, TensorNames system);

}  // namespace fp8::convert
