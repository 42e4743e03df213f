/// A small model and stores of it with memory of their own, for the tests of this crate.
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fp8/data/tokens.h"
#include "fp8/device/arena.h"
#include "fp8/dtype/convert.h"
#include "fp8/json/json.h"
#include "fp8/train/store.h"
#include "fp8_test.h"

namespace fp8::train {

using test::error_of;
using test::FolderTest;
using test::read_file;

/// Qwen3 with every linear fit for FP8 and norms of two elements, so that most ranks own no row of them.
inline hf::ModelConfig small_model(bool tied = false) {
  const std::string text = R"({"model_type": "qwen3", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 2,
    "max_position_embeddings": 64, "tie_word_embeddings": )";
  return hf::parse_config(json::parse(text + (tied ? "true}" : "false}"), "small"), "small");
}

/// Its parameters with the precisions of FP8.
inline std::vector<model::Parameter> small_table(const hf::ModelConfig& config, bool lm_head = false) {
  std::vector<model::Parameter> table = model::parameter_table(config);
  model::LinearPrecisionOptions precisions;
  precisions.lm_head = lm_head;
  model::assign_precisions(table, precisions);
  return table;
}

/// A number for element `i` of parameter `number` that no narrow format holds.
inline float odd_value(int number, std::int64_t i) {
  return 0.3f * std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(number));
}

/// A whole number from -3 to 3.
inline float whole_value(int number, std::int64_t i) { return static_cast<float>((i * 5 + number * 3) % 7 - 3); }

/// A store and the memory it lies in.
struct Kit {
  device::Arena arena;
  Context ctx;
  std::size_t planned = 0;  ///< bytes of the store alone, from a dry run
  std::unique_ptr<ParameterStore> store;

  Kit(comm::Communicator& group, const hf::ModelConfig& config, const std::vector<model::Parameter>& table,
      const StoreOptions& options) {
    device::Arena dry;
    Context plan;
    plan.arena = &dry;
    plan.dry = true;
    { const ParameterStore unreal(plan, group, config, table, options); }
    planned = dry.peak();
    constexpr std::size_t kForPasses = std::size_t{4} << 20;
    arena = device::Arena(planned + kForPasses, device::DeviceType::host);
    ctx.arena = &arena;
    store = std::make_unique<ParameterStore>(ctx, group, config, table, options);
  }
  Kit(const Kit&) = delete;
  Kit& operator=(const Kit&) = delete;

  /// Fills the own rows of every master.
  void fill(float (*value)(int, std::int64_t)) {
    for (const ParameterShard& o : store->shards()) {
      const model::Parameter& p = store->table()[static_cast<std::size_t>(o.number)];
      std::vector<float> row(static_cast<std::size_t>(p.cols()));
      for (std::int64_t r = o.rows.begin; r < o.rows.end; ++r) {
        for (std::int64_t c = 0; c < p.cols(); ++c)
          row[static_cast<std::size_t>(c)] = value(o.number, r * p.cols() + c);
        dtype::from_floats(row, o.master.dtype, o.master.rows(r - o.rows.begin, r - o.rows.begin + 1).data);
      }
    }
    store->refresh_compute_weights(ctx);
  }
};

/// The bytes of a contiguous view.
inline std::string bytes_of(const View& v) {
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

}  // namespace fp8::train
