// Names of tensors in other systems. Private to this crate.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fp8::convert {

// A name of torchtitan as Hugging Face has it.
struct TorchtitanName {
  std::string name;        // of Hugging Face; that of grouped experts has {} for the number of the expert
  bool query_key = false;  // wq or wk
  bool experts = false;    // [experts, out, in]
};

// Without what torch.compile, FSDP1, activation checkpointing and DDP add to names.
std::string without_wrappers(std::string_view name);

// The name under which tensors are matched: without_wrappers(), and without what PEFT adds.
std::string key_of(std::string_view name);

// Nothing if torchtitan has no such name, be it in models of Llama 3, Qwen3 or their experts. Source: torchtitan,
// models/llama3/state_dict_adapter.py and models/qwen3/state_dict_adapter.py.
std::optional<TorchtitanName> from_torchtitan(std::string_view name);

}  // namespace fp8::convert
