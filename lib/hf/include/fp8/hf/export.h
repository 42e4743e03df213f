/// The JSON files of an exported model folder, as transformers, vLLM and SGLang read them. The weights are written with
/// safetensors.h, the configuration with config.h.
/// Source: transformers 5.23, quantizer_finegrained_fp8.py and configuration_utils.py; compressed-tensors 0.20,
/// quant_config.py; fp8.py and compressed_tensors.py of vLLM and SGLang at the commits that fp8-export(1) names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fp8/hf/config.h"
#include "fp8/json/value.h"

namespace fp8::hf {

/// Rows and columns of a block of `block_quantization()`.
inline constexpr std::int64_t kQuantizationBlock = 128;

/// Elements of a row under one scale of `group_quantization()`.
inline constexpr std::int64_t kFp4Group = 16;

/// `format` of `group_quantization()`.
inline constexpr const char* kNvfp4 = "nvfp4-pack-quantized";

/// `quantization_config` of weights in E4M3 with one f32 scale for each block of 128 x 128, `weight_scale_inv`, and
/// activations quantized while the model runs. `kept` are the full names of the linear modules that are not quantized,
/// merged ones too.
json::Value block_quantization(const std::vector<std::string>& kept);

/// `quantization_config` of compressed-tensors: weights in E4M3 with one scale for each row, `weight_scale` [rows, 1],
/// and activations quantized per token while the model runs. `kept` as above.
json::Value channel_quantization(const std::vector<std::string>& kept);

/// `quantization_config` of compressed-tensors for NVFP4: weights in E2M1, two in a byte, `weight_packed` [rows, cols /
/// 2], with one E4M3 scale for each 16 elements of a row, `weight_scale` [rows, cols / 16], under one f32 scale,
/// `weight_global_scale` [1]; a code times its scale over that of the tensor is the weight. Activations are not
/// quantized. `kept` as above.
json::Value group_quantization(const std::vector<std::string>& kept);

/// `generation_config.json`: `stored` (null: none) with the ids of `config` where it has none, and with `end_tokens`
/// among those that end a text. Throws Error `what: reason` if `stored` is not an object or has an unusable
/// `eos_token_id`.
json::Value generation_config(const ModelConfig& config, const json::Value& stored,
                              const std::vector<std::int64_t>& end_tokens, const std::string& what);

/// The ids that end a text, under `eos_token_id` of a generation_config.json; none if the object has none. Throws Error
/// `what: reason` if they are unusable.
std::vector<std::int64_t> end_tokens_of(const json::Object& generation_config, const std::string& what);

/// `model.safetensors.index.json` of a model of `bytes` bytes of tensors; `file_of` maps tensors to the files' names.
json::Value shard_index(const std::map<std::string, std::string>& file_of, std::uint64_t bytes);

/// Name of file `index` (from 0) of `count` files of weights: model.safetensors, or model-00001-of-00002.safetensors.
std::string shard_name(std::size_t index, std::size_t count);

}  // namespace fp8::hf
