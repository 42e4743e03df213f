/// The adapters of a run (LoRA): which linears have one, and their values before the first step.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/hf/adapter.h"
#include "fp8/model/parameters.h"
#include "fp8/settings/config.h"
#include "fp8/shard/shard.h"

namespace fp8::settings {

/// Writes rows of an adapter's matrix.
using AdapterValues = std::function<void(const model::Parameter& adapter, shard::RowRange rows, std::span<float> out)>;

/// Throws Error if settings of adapters contradict each other, or others.
void check_lora_settings(const RunConfig& config);

/// Throws Error for settings of new adapters without a rank. They need a rank or a folder whatever the model is.
void check_new_adapters(const LoraSettings& settings);

/// Throws Error for settings that a run with adapters cannot have.
void check_beside_adapters(const RunConfig& config);

/// Opens the adapter that a run starts from, if it does.
std::optional<hf::AdapterFolder> open_adapter(const RunConfig& config, const hf::ModelConfig& model);

/// The adapters of a run whose MODEL, at `path`, is `model`: the adapters of MODEL, of `folder`, or new ones; nothing
/// if there are none. Throws Error if MODEL has some and others are requested, for targets that the model does not
/// have, and for dropout of adapters of experts.
std::optional<hf::LoraConfig> resolve_lora(const LoraSettings& settings, const hf::ModelConfig& model,
                                           const std::string& path, const std::optional<hf::AdapterFolder>& folder);

/// Throws Error unless the model of a checkpoint at `path` is `model` with the adapters `lora`, but for their dropout.
void check_same_adapters(const hf::ModelConfig& checkpoint, const std::string& path, hf::ModelConfig model,
                         const std::optional<hf::LoraConfig>& lora, const std::string& name);

/// The values of adapters before the first step: the values in `folder`, or without one random values of `seed`. Refers
/// to `folder`.
AdapterValues initial_adapters(const std::optional<hf::AdapterFolder>& folder, std::uint64_t seed);

/// The precision and the recipe with which FP8 codes of `checkpoint` are computed, set in `precision` where they are
/// not given: with one scale tensorwise, with one for each row rowwise with one FP8 copy, with blocks of 128 x 128
/// blockwise. Nothing changes without codes. Throws Error if others are given, and for codes with MX scales.
void take_recipe_of_codes(PrecisionConfig& precision, const ckpt::Checkpoint& checkpoint,
                          const std::vector<model::Parameter>& table);

/// The recipes of `config` that fit the checkpoint: where --recipe all gave them, only that of its FP8 codes, if it
/// holds some, with a note.
std::vector<std::string> fitting_recipes(const EvalConfig& config, const ckpt::Checkpoint& checkpoint,
                                         std::vector<std::string>& notes);

/// Throws Error if a linear that is stored as codes does not run in FP8 in forward and dgrad.
void check_codes_run(const ckpt::Checkpoint& checkpoint, const std::vector<model::Parameter>& table);

/// Lines of the tables that precede the first step: "adapters (LoRA):" and "  rank 8, alpha 16 on 14 linears; 18688 of
/// 213120 parameters are trained".
std::string text_of_lora(const hf::LoraConfig& lora, const std::vector<model::Parameter>& table);

}  // namespace fp8::settings
