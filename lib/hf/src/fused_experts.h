/// Experts that are one tensor of a layer, as transformers 5 has them in memory. Private to this crate.
#pragma once

#include <vector>

#include "fp8/hf/config.h"
#include "fp8/hf/safetensors.h"

namespace fp8::hf {

/// The matrices of single experts that `tensor` consists of, under their published names; each is a contiguous part of
/// its data. `tensor` is model.layers.N.mlp.experts.gate_up_proj [E, 2 I, C], the rows of gate before those of up, or
/// down_proj [E, C, I]; the router mlp.gate.weight of Mixtral is one matrix. Empty for any other name, shape or family.
/// Source: transformers 5.23, save_pretrained(save_original_format=False).
std::vector<TensorInfo> split_experts(const TensorInfo& tensor, const ModelConfig& config);

}  // namespace fp8::hf
