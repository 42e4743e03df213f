/// The configuration of a run: the flags of fp8-step as values, and which of them may change when a run is resumed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/comm/comm.h"
#include "fp8/data/sampler.h"
#include "fp8/dtype/dtype.h"
#include "fp8/json/value.h"
#include "fp8/model/decoder.h"
#include "fp8/optim/adamw.h"
#include "fp8/optim/schedule.h"
#include "fp8/quant/recipe.h"
#include "fp8/train/store.h"

namespace fp8::train {

/// Precision of the GEMMs of linear layers.
enum class Precision : std::uint8_t { fp32, bf16, fp8 };
/// fp32, bf16, fp8.
std::string_view name_of(Precision p);

/// How a run or an evaluation computes.
struct PrecisionConfig {
  Precision precision = Precision::bf16;                      ///< of GEMMs of linear layers
  dtype::DType activations = dtype::DType::bf16;              ///< f32 with fp32
  std::string recipe = "tensorwise";                          ///< for fp8
  std::optional<bool> power_of_2;                             ///< nothing: as the recipe does
  std::optional<bool> fp8_all_gather;                         ///< nothing: if the recipe allows it
  bool rowwise_single_copy = false;                           ///< for rowwise: one FP8 copy of each weight
  bool e4m3_gradients = false;                                ///< gradients e4m3 where the recipe has e5m2
  DelayedOptions delayed;                                     ///< for delayed
  bool fuse_projections = false;                              ///< q, k, v, and gate, up, are one linear each
  bool emulate = false;                                       ///< FP8 values are multiplied as bf16 on a GPU too
  gemm::Accumulation accumulation = gemm::Accumulation::f32;  ///< for fp8 on the CPU
  ops::AttentionOptions attention;                            ///< on a GPU
  model::LinearPrecisionOptions selection;                    ///< of the linears that run in FP8
  std::vector<std::string> given;                             ///< flags that were given and act only under fp8
  /// Flags that were given; a model of FP8 codes has defaults of its own.
  bool precision_given = false, recipe_given = false, format_given = false, single_copy_given = false;

  /// The recipe; null unless fp8.
  const quant::Recipe* recipe_or_null() const;
  /// Whether scales are powers of two under this configuration.
  bool power_of_2_scales() const;
};

/// The value of --lora-targets for all linears of all layers, its default.
inline constexpr const char* kAllTargets = "all";

/// Adapters that a run trains instead of the model's weights (LoRA).
struct LoraSettings {
  std::int64_t rank = 0;             ///< of new adapters; 0: none
  std::optional<double> alpha;       ///< nothing: twice the rank
  std::vector<std::string> targets;  ///< globs of linears, or `all`; empty: all
  std::optional<double> dropout;     ///< nothing: 0, or that of the adapters which the run continues
  bool rslora = false;               ///< scaling by alpha / sqrt(rank)
  std::string folder;                ///< PEFT adapter to start from; empty: none

  /// Whether the run has new adapters.
  bool wanted() const { return rank > 0 || !folder.empty(); }
};

/// A run.
struct RunConfig {
  std::string model, data, out;                            ///< paths
  bool any_tokenizer = false;                              ///< accept data made with another tokenizer
  std::string eval_data;                                   ///< path; empty: no evaluation
  std::int64_t seq_length = 0;                             ///< T; 0: the model's max_position_embeddings, 1024 at most
  std::int64_t batch_size = 8;                             ///< sequences per rank and micro-batch
  std::int64_t grad_accumulation = 1;                      ///< micro-batches per rank and step
  data::SamplerKind sampler = data::SamplerKind::shuffle;  ///< order in which samples are read
  data::DocumentMode documents = data::DocumentMode::automatic;  ///< whether samples cross documents
  std::int64_t steps = 0;                                        ///< of the whole run; 0: from epochs
  double epochs = 0;                                             ///< passes over the data, when steps is 0
  std::int64_t until_step = 0;                                   ///< stop after this step; 0: after the last
  std::uint64_t seed = 0;                                        ///< of the sampler and of stochastic rounding
  std::vector<std::string> change;           ///< settings that may change on resuming, by setting_name()
  PrecisionConfig precision;                 ///< of GEMMs and activations
  LoraSettings lora;                         ///< adapters
  std::optional<device::DeviceType> device;  ///< nothing: a GPU if every rank has one, otherwise the CPU
  optim::Settings optimizer;                 ///< AdamW
  optim::Schedule schedule;                  ///< without its number of steps
  double warmup_ratio = 0;                   ///< of steps, when schedule.warmup is 0
  double clip = 1;                           ///< largest norm of the gradient; 0: no clipping
  dtype::DType master = dtype::DType::f32, moments = dtype::DType::f32;  ///< formats of storage
  int zero = 3;                                                          ///< stage of sharding
  bool reshard_after_forward = true;                                     ///< with stage 3
  model::Recompute recompute = model::Recompute::none;                   ///< of activations in backward
  std::int64_t save_every = 0;                                           ///< steps; 0: see save_seconds
  double save_seconds = 0;                                               ///< between saves; 0: only the last step
  bool rolling = false;                                                  ///< only the newest two checkpoints are kept
  std::int64_t keep = 0;                                                 ///< newest checkpoints to keep; 0: all
  std::int64_t milestone_every = 0;          ///< steps between checkpoints that are always kept; 0: none
  bool keep_best = false;                    ///< keep also the checkpoint with the lowest loss
  bool async_save = false;                   ///< checkpoints are written in the background
  std::int64_t log_every = 1;                ///< steps between records
  std::int64_t paranoid = 0;                 ///< steps between steps that are computed twice; 0: none
  std::int64_t eval_every = 0;               ///< steps; 0: never
  std::int64_t sample_every = 0;             ///< steps between samples of text; 0: none
  std::optional<std::string> sample_prompt;  ///< text that samples continue
  std::int64_t sample_tokens = 64;           ///< most new tokens of a sample
  std::int64_t stats_every = 0;              ///< steps between those with records in tensors.jsonl; 0: none
  std::int64_t eval_batches = 0;             ///< batches per rank and evaluation; 0: the whole file
  std::int64_t profile_first = 0;            ///< first step to profile, from 1
  std::int64_t profile_last = 0;             ///< last step to profile; 0: none
  bool dry_run = false;                      ///< check and plan only
  std::string tool_version;                  ///< for provenance
  std::string command;                       ///< for provenance
  json::Value flags;                         ///< resolved flags, for the first record
};

/// {"precision", "recipe"}; the recipe is null unless fp8. With fp8 also the settings of FP8, by the names of flags.
json::Value phase_of(const PrecisionConfig& precision);

/// A configuration with which fp8-step computes FP8 as `precision` does, see fp8-config(5): precision, recipe, and what
/// is not at its default and has an effect. Without device.
json::Value configuration_of(const PrecisionConfig& precision);

/// The options of a ParameterStore for a precision; casts are counted in `counts`, which may be null.
StoreOptions store_options(const PrecisionConfig& precision, quant::CastCounts* counts);

/// The name of the global batch among the settings, as messages state it.
inline constexpr const char* kGlobalBatch = "global batch (ranks x --batch-size x --grad-accumulation)";

/// The settings that may not change when a run is resumed, unless RunConfig::change names them, by name.
json::Value fixed_settings(const RunConfig& config, std::int64_t global_batch, const std::string& model_digest,
                           const std::string& data_digest);

/// Adds the settings of adapters to those of fixed_settings(): `lora` as resolved, and the digest of the adapter that
/// the run starts from; empty if there is none.
void add_lora_settings(const RunConfig& config, const hf::LoraConfig& lora, const std::string& digest,
                       json::Value& settings);

/// Of the settings of adapters, null where only one of two runs has adapters.
void complete_lora_settings(json::Value& one, json::Value& other);

/// The first setting that differs between two objects, as a message names it: "--lr (0.1JOINT0.2)"; digests without
/// values. Empty if none differs. Settings that `one` lacks are not compared.
std::string first_difference(const json::Value& one, const json::Value& other, const std::string& joint);

/// The name in --change of a setting or flag: "batch" for all that determine the global batch, "warmup" for both forms
/// of the warmup, else `name`.
std::string setting_name(const std::string& name);

/// The names that --change accepts, which are all settings but MODEL, and steps, which may change without it.
std::span<const std::string_view> changeable_settings();

/// A setting with another value than the run's checkpoint has.
struct SettingChange {
  std::string name;        ///< of the flag; "batch" for the global batch
  json::Value old, value;  ///< before and now; digests of data
};

/// The settings of a run that differ from those of its checkpoint, `before`. Throws Error naming the first one that
/// `change` does not name; `path` is the folder of the run.
std::vector<SettingChange> changed_settings(const json::Value& before, const json::Value& now,
                                            const std::vector<std::string>& change, const std::string& path);

/// Throws AgreedError naming the first rank whose settings differ from rank 0's, and the first such setting.
/// Collective.
void check_same_on_all_ranks(comm::Communicator& host_comm, const json::Value& mine);

}  // namespace fp8::train
