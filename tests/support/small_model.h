/// A small model, its parameters on some ranks, and data for it.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "filled_model.h"
#include "fp8/data/tokens.h"
#include "fp8/dtype/convert.h"
#include "fp8/json/json.h"
#include "fp8/shard/sharded_model.h"
#include "fp8_test.h"

namespace fp8::test {

/// Qwen3 with linears that are all eligible for FP8, and norms of two elements, of which most ranks own none.
inline hf::ModelConfig small_model(bool tied = false) {
  const std::string text = R"({"model_type": "qwen3", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 2,
    "max_position_embeddings": 64, "tie_word_embeddings": )";
  return hf::parse_config(json::parse(text + (tied ? "true}" : "false}"), "small"), "small");
}

/// The small model with adapters of rank 4, which differ between layers.
inline hf::ModelConfig small_model_with_adapters() {
  hf::ModelConfig config = small_model();
  config.lora = hf::LoraConfig{4, 8, false, 0, {}};
  for (const std::string& module : hf::linear_modules(config))
    if (!module.starts_with("model.layers.1.") || module.ends_with("k_proj") || module.ends_with("down_proj"))
      config.lora->targets.push_back(module);
  return config;
}

/// Its parameters with the precisions under FP8, stored as bf16 in part.
inline std::vector<model::Parameter> small_table(const hf::ModelConfig& config, bool lm_head = false,
                                                 const quant::GemmSet& gemms = {}) {
  std::vector<model::Parameter> table = model::parameter_table(config);
  for (model::Parameter& p : table)
    if (!p.trainable && p.slot != model::Slot::down) p.stored = dtype::DType::bf16;
  model::PrecisionRules precisions;
  precisions.lm_head = lm_head;
  precisions.gemms = {{"", gemms}};
  model::assign_precisions(table, precisions);
  return table;
}

/// A value for element `i` of parameter `number` that bf16 and FP8 do not represent.
inline float odd_value(int number, std::int64_t i) {
  return 0.3f * std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(number));
}

/// An integer from -3 to 3.
inline float whole_value(int number, std::int64_t i) { return static_cast<float>((i * 5 + number * 3) % 7 - 3); }

/// Bytes of a model alone, without those of a step, from a dry run.
inline std::size_t model_bytes(const comm::Mesh& mesh, const shard::ModelSpec& spec) {
  const shard::ShardedModel dry({}, mesh, spec, device::Arena());
  return dry.arena.peak();
}

/// A model on the host, with memory for steps of some tokens.
struct Kit : shard::ShardedModel {
  Kit(comm::Communicator& device_comm, const hf::ModelConfig& config, const std::vector<model::Parameter>& table,
      const shard::StoreOptions& options, model::Recompute recompute = model::Recompute::none)
      : Kit(comm::Mesh(device_comm), config, table, options, recompute) {}
  Kit(const comm::Mesh& mesh, const hf::ModelConfig& config, const std::vector<model::Parameter>& table,
      const shard::StoreOptions& options, model::Recompute recompute = model::Recompute::none)
      : Kit(mesh, shard::ModelSpec{config, table, options, {.recompute = recompute}}) {}
  Kit(comm::Communicator& device_comm, const shard::ModelSpec& spec) : Kit(comm::Mesh(device_comm), spec) {}
  Kit(const comm::Mesh& mesh, const shard::ModelSpec& spec) : Kit(mesh, spec, model_bytes(mesh, spec)) {}

  /// Fills every master: `value(parameter, element)`.
  void fill(float (*value)(int, std::int64_t)) {
    fill_masters(*this, [&](int number, std::int64_t begin, std::int64_t end) {
      const std::int64_t cols = store.table()[static_cast<std::size_t>(number)].cols();
      std::vector<float> values;
      for (std::int64_t i = begin * cols; i < end * cols; ++i) values.push_back(value(number, i));
      return values;
    });
  }

  std::size_t planned = 0;  ///< bytes of the model alone, from a dry run

 private:
  static constexpr std::size_t kForSteps = std::size_t{4} << 20;
  Kit(const comm::Mesh& mesh, const shard::ModelSpec& spec, std::size_t bytes)
      : shard::ShardedModel({}, mesh, spec, device::Arena(bytes + kForSteps, device::DeviceType::host)),
        planned(bytes) {}
};

/// The bytes of a contiguous view.
inline std::string bytes_of(const tensor::View& v) {
  return v.empty() ? "" : std::string(static_cast<char*>(v.data), v.bytes());
}

/// A token file of `count` ids below `vocabulary`.
inline void write_tokens(const std::string& path, std::int64_t count, std::int64_t vocabulary) {
  data::TokenWriter writer(path, vocabulary, std::nullopt, false, false);
  std::vector<std::uint32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::uint32_t>((i * i + i / 7) % vocabulary));
  writer.append(ids);
  (void)writer.finish();
}

}  // namespace fp8::test
