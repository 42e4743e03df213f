// JSON of an exported folder.
#include "fp8/hf/export.h"

#include <algorithm>
#include <cstdio>

#include "fp8/base/error.h"

namespace fp8::hf {
namespace {

json::Array names(const std::vector<std::string>& list) { return {list.begin(), list.end()}; }

// Arguments of 8-bit floats in the notation of compressed-tensors.
json::Value float8(const char* strategy, bool dynamic) {
  return json::object(
      {{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", strategy}, {"dynamic", dynamic}});
}

// One group of compressed-tensors for all linears but `kept`.
json::Value compressed_tensors(const char* format, const json::Value& weights, const json::Value& activations,
                               const std::vector<std::string>& kept) {
  const json::Value group = json::object({{"targets", json::Array{"Linear"}},
                                          {"weights", weights},
                                          {"input_activations", activations},
                                          {"output_activations", nullptr}});
  return json::object({{"quant_method", "compressed-tensors"},
                       {"format", format},
                       {"quantization_status", "compressed"},
                       {"config_groups", json::object({{"group_0", group}})},
                       {"ignore", names(kept)},
                       {"kv_cache_scheme", nullptr}});
}

void add_end_token(std::vector<std::int64_t>& ids, std::int64_t id) {
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
}

}  // namespace

json::Value block_quantization(const std::vector<std::string>& kept) {
  return json::object({{"quant_method", "fp8"},
                       {"fmt", "e4m3"},
                       {"activation_scheme", "dynamic"},
                       {"weight_block_size", json::Array{kQuantizationBlock, kQuantizationBlock}},
                       {"modules_to_not_convert", names(kept)},
                       {"ignored_layers", names(kept)}});
}

json::Value channel_quantization(const std::vector<std::string>& kept) {
  return compressed_tensors("float-quantized", float8("channel", false), float8("token", true), kept);
}

json::Value group_quantization(const std::vector<std::string>& kept) {
  const json::Value weights = json::object({{"num_bits", 4},
                                            {"type", "float"},
                                            {"symmetric", true},
                                            {"strategy", "tensor_group"},
                                            {"group_size", kFp4Group},
                                            {"scale_dtype", "torch.float8_e4m3fn"},
                                            {"dynamic", false}});
  return compressed_tensors(kNvfp4, weights, nullptr, kept);
}

std::vector<std::int64_t> end_tokens_of(const json::Object& generation_config, const std::string& what) {
  const json::Value* const value = generation_config.find("eos_token_id");
  std::vector<std::int64_t> ids;
  if (value == nullptr || value->is_null()) return ids;
  for (const json::Value& id : value->is_array() ? value->as_array() : json::Array{*value}) {
    if (!id.is_int() || id.as_int() < 0) throw Error(what + ": \"eos_token_id\" is not a token id or a list of them");
    ids.push_back(id.as_int());
  }
  return ids;
}

json::Value generation_config(const ModelConfig& config, const json::Value& stored,
                              const std::vector<std::int64_t>& end_tokens, const std::string& what) {
  if (!stored.is_null() && !stored.is_object()) throw Error(what + ": not an object");
  json::Object out = stored.is_object() ? stored.as_object() : json::Object();
  if (stored.is_null()) out.set("_from_model_config", true);
  if (!out.contains("bos_token_id") && config.bos_token_id) out.set("bos_token_id", *config.bos_token_id);
  std::vector<std::int64_t> ids = end_tokens_of(out, what);
  if (ids.empty()) {
    for (const std::int64_t id : config.eos_token_ids) add_end_token(ids, id);
  }
  for (const std::int64_t id : end_tokens) add_end_token(ids, id);
  if (ids.size() == 1) {
    out.set("eos_token_id", ids.front());
  } else if (!ids.empty()) {
    out.set("eos_token_id", json::Array(ids.begin(), ids.end()));
  }
  return out;
}

json::Value shard_index(const std::map<std::string, std::string>& file_of, std::uint64_t bytes) {
  json::Object map;
  for (const auto& [tensor, file] : file_of) map.set(tensor, file);
  return json::object({{"metadata", json::object({{"total_size", bytes}})}, {"weight_map", std::move(map)}});
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  char text[64];
  std::snprintf(text, sizeof text, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return text;
}

}  // namespace fp8::hf
