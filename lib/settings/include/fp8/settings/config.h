/// The configurations of a run, an evaluation and an inspection: flags as values. The table of settings (setting.h)
/// says which flag sets which member.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/data/sampler.h"
#include "fp8/dtype/dtype.h"
#include "fp8/json/value.h"
#include "fp8/model/execution.h"
#include "fp8/model/parameters.h"
#include "fp8/optim/adamw.h"
#include "fp8/optim/schedule.h"
#include "fp8/quant/recipe.h"
#include "fp8/shard/options.h"
#include "fp8/shard/sharded_model.h"

namespace fp8::settings {

using dtype::DType;

/// Precision of the GEMMs of linear layers.
enum class Precision : std::uint8_t { fp32, bf16, fp8 };
/// fp32, bf16, fp8.
std::string_view name_of(Precision p);

/// The recipe of some linears.
struct LinearRecipe {
  std::string glob;    ///< glob of names of weights
  std::string recipe;  ///< name of their recipe
};

/// How a run or an evaluation computes.
struct PrecisionConfig {
  Precision precision = Precision::bf16;     ///< precision of the GEMMs of linear layers
  model::Execution execution;                ///< settings of the decoder; activations f32 with fp32
  std::string recipe = "tensorwise";         ///< recipe of FP8
  std::vector<LinearRecipe> linear_recipes;  ///< recipes of some linears; the last that matches applies
  std::optional<bool> power_of_2;            ///< scales are powers of two; nothing: by the recipe
  bool fp8_all_gather = true;                ///< if the recipe allows it
  bool rowwise_single_copy = false;          ///< recipe rowwise: one FP8 copy of each weight
  bool e4m3_gradients = false;               ///< gradients e4m3 where the recipe has e5m2
  bool stochastic_gradients = true;          ///< recipe nvfp4: gradients are rounded stochastically
  bool hadamard = true;                      ///< recipe nvfp4: the Hadamard transform precedes the casts of wgrad
  shard::DelayedOptions delayed;             ///< options of recipe delayed
  bool fuse_projections = false;             ///< q, k, v, and gate, up, are one linear each
  bool emulate = false;                      ///< FP8 values are multiplied as bf16 on a GPU too
  gemm::Accumulation accumulation = gemm::Accumulation::f32;  ///< accumulation of FP8 on the CPU
  model::PrecisionRules selection;                            ///< selection of the linears that run in FP8
  bool chosen = false;                                        ///< --precision was given, also with its default
  std::vector<std::string> given;                             ///< flags of precision that were given
  std::vector<std::string> typed;                             ///< flags of `given` that are on the command line

  /// Whether a flag of precision was given; a model of FP8 codes has defaults of its own.
  bool was_given(std::string_view flag) const;
  /// The recipe; null unless fp8.
  const quant::Recipe* recipe_or_null() const;
  /// The recipe of this name as the other settings make it: with one FP8 copy of each weight, with e4m3 gradients, or
  /// nvfp4 with its options.
  const quant::Recipe& variant_of(const std::string& name) const;
  /// The recipe, then the recipes of linear_recipes; none without fp8.
  std::vector<const quant::Recipe*> recipes_used() const;
  /// The names of recipe and linear_recipes, also without fp8.
  std::vector<std::string> recipe_names() const;
  /// Whether some linears have recipe rowwise.
  bool has_rowwise() const;
  /// Whether some linears have recipe nvfp4.
  bool has_nvfp4() const;
  /// Whether all have a recipe with a scale for each tensor that is computed when it is cast: tensorwise or current.
  bool has_tensor_scales() const;
  /// The values of --recipe, separated by commas: "tensorwise,*.down_proj=rowwise".
  std::string recipe_text() const;
  /// Whether scales are powers of two under this configuration.
  bool power_of_2_scales() const;
};

/// The name for bf16 among the recipes of an evaluation.
inline constexpr const char* kPlainRecipe = "bf16";
/// The name for fp32 beside recipes.
inline constexpr const char* kExactRecipe = "fp32";

/// The value of --lora-targets for all linears of all layers, its default.
inline constexpr const char* kAllTargets = "all";

/// Adapters that a run trains instead of the model's weights (LoRA).
struct LoraSettings {
  std::int64_t rank = 0;             ///< rank of new adapters; 0: none
  std::optional<double> alpha;       ///< nothing: twice the rank
  std::vector<std::string> targets;  ///< globs of linears, or `all`; empty: all
  std::optional<double> dropout;     ///< nothing: 0, or the dropout of the adapters which the run continues
  bool rslora = false;               ///< scaling by alpha / sqrt(rank)
  std::string folder;                ///< PEFT adapter to start from; empty: none

  /// Whether the run has new adapters.
  bool wanted() const { return rank > 0 || !folder.empty(); }
};

/// The settings that a run, an evaluation and an inspection have in common.
struct Config {
  std::string model, data;      ///< paths
  bool any_tokenizer = false;   ///< accept data made with another tokenizer
  std::int64_t seq_length = 0;  ///< T; 0: as resolved_length() says
  std::int64_t batch_size = 8;  ///< sequences of a rank at a time; in a run, per micro-batch
  data::DocumentMode documents = data::DocumentMode::automatic;  ///< whether samples cross documents
  std::int64_t dp_replicate = 1;                                 ///< copies of the sharded parameters
  std::int64_t dp_shard = 0;                                     ///< ranks that share a copy; 0: the others
  std::int64_t ep = 1;                                           ///< parts of the experts
  std::int64_t tp = 1;                                           ///< parts of each linear
  std::int64_t pp = 1;                                           ///< stages of layers
  std::vector<int> stages;                                       ///< layers of each stage; empty: even by cost
  PrecisionConfig precision;                                     ///< precision of GEMMs and activations
  std::optional<device::DeviceType> device;  ///< nothing: a GPU if every rank has one, otherwise the CPU
};

/// A run.
struct RunConfig : Config {
  std::string out;                                         ///< folder
  std::string eval_data;                                   ///< path; empty: no evaluation
  std::string config_file;                                 ///< path of --config; empty: none
  std::int64_t grad_accumulation = 1;                      ///< micro-batches per rank and step
  data::SamplerKind sampler = data::SamplerKind::shuffle;  ///< order in which samples are read
  std::int64_t steps = 0;                                  ///< steps of the whole run; 0: from epochs
  double epochs = 0;                                       ///< passes over the data, when steps is 0
  std::int64_t until_step = 0;                             ///< stop after this step; 0: after the last
  std::uint64_t seed = 0;                                  ///< seed of the sampler and of stochastic rounding
  bool any_template = false;                               ///< accept data made with another chat template
  std::vector<std::string> change;                         ///< names in --change of settings that may change
  LoraSettings lora;                                       ///< adapters
  optim::Settings optimizer;                               ///< AdamW
  optim::Schedule schedule;                                ///< schedule, without its number of steps
  std::int64_t schedule_steps = 0;                         ///< length of the schedule; 0: steps
  double warmup_ratio = 0;                                 ///< share of steps that warm up, when schedule.warmup is 0
  double clip = 1;                                         ///< largest norm of the gradient; 0: no clipping
  double aux_loss = 0, z_loss = 0;                         ///< factors of the losses that balance experts
  DType master = DType::f32, moments = DType::f32;         ///< formats of storage
  double expert_rows = 2;                                  ///< with ep: rows of experts on a rank, times the mean
  DType reduce = DType::f32;                               ///< format in which gradients travel
  int zero = 3;                                            ///< stage of sharding
  bool reshard_after_forward = true;                       ///< reshard weights after forward, with zero 3
  std::int64_t save_every = 0;                             ///< steps; 0: see save_seconds
  double save_seconds = 30 * 60;                           ///< between saves; 0: only the last step
  bool rolling = false;                                    ///< only the newest two checkpoints are kept
  std::int64_t keep = 0;                                   ///< newest checkpoints to keep; 0: all
  std::int64_t milestone_every = 0;                        ///< steps between checkpoints that are always kept; 0: none
  bool keep_best = false;                                  ///< keep also the checkpoint with the lowest loss
  bool async_save = false;                                 ///< checkpoints are written in the background
  std::int64_t log_every = 1;                              ///< steps between records
  std::int64_t paranoid = 0;                               ///< steps between steps that are computed twice; 0: none
  std::string gradients;                                   ///< file for the gradients of the first step; empty: none
  bool force = false;                                      ///< replace that file if it exists
  std::int64_t eval_every = 0;                             ///< steps; 0: never
  std::int64_t sample_every = 0;                           ///< steps between samples of text; 0: none
  std::optional<std::string> sample_prompt;                ///< text that samples continue
  std::int64_t sample_tokens = 64;                         ///< most new tokens of a sample
  std::int64_t update_rms_every = 0;  ///< steps between those whose records have the size of the update; 0: none
  std::int64_t stats_every = 0;       ///< steps between those with records in tensors.jsonl; 0: none
  std::int64_t eval_batches = 0;      ///< batches per rank and evaluation; 0: the whole file
  std::int64_t profile_first = 0;     ///< first step to profile, from 1
  std::int64_t profile_last = 0;      ///< last step to profile; 0: none
  bool dry_run = false;               ///< check and plan only
  std::string tool_version;           ///< for provenance
  std::string command;                ///< for provenance
  json::Value flags;                  ///< resolved flags, for the first record
};

/// Recipes that a tool computes one after the other.
struct Recipes {
  std::vector<std::string> recipes;  ///< each in turn, with linear_recipes; none: precision.recipe; bf16: the precision
  bool all_recipes = false;          ///< of `recipes` only those that fit FP8 codes
};

/// An evaluation.
struct EvalConfig : Config, Recipes {
  bool per_token = false;  ///< a record for every sequence
};

/// A plan of a run on ranks that need not exist. Settings that fp8-plan has no flag for are at their defaults.
struct PlanConfig : RunConfig, Recipes {
  std::string machine;                 ///< name or path; empty: memory alone
  std::vector<std::string> keys;       ///< KEY=VALUE of the configuration, machine.KEY=VALUE of the machine
  std::int64_t ranks = 0;              ///< 0: the product of the sizes of the mesh
  std::int64_t ranks_per_node = 0;     ///< 0: those of the machine
  bool fit = false;                    ///< search what fits
  std::vector<std::int64_t> sweep;     ///< numbers of ranks
  bool layers = false;                 ///< times of the linears
  std::string as;                      ///< program whose habits count; empty: fp8-step
  std::int64_t virtual_stages = 1;     ///< stages of each rank, interleaved
  double imbalance = 1;                ///< rows of the busiest rank's experts over the mean
  std::int64_t tokens = 0;             ///< tokens of the whole run; 0: not known
  std::optional<double> require_gain;  ///< speed over bf16 that is needed
  std::string plot;                    ///< image to draw; empty: none
};

/// Flags of precision as one value, and the precision that they set.
struct PrecisionSide {
  std::string flags;                         ///< as given: "--precision fp8 --recipe rowwise"
  PrecisionConfig precision;                 ///< precision of GEMMs and activations
  std::optional<device::DeviceType> device;  ///< like EvalConfig::device
};

/// A comparison of one pass under two settings.
struct Bisection {
  PrecisionSide a, b;           ///< b is compared with a
  std::optional<double> bound;  ///< largest relative difference; nothing: kBisectionBound, and no gate
};

/// Relative difference above which a bisection names an operation unless another is given.
inline constexpr double kBisectionBound = 0.5;

/// An inspection. The batch consists of batch_size sequences on each rank.
struct InspectConfig : EvalConfig {
  data::SamplerKind sampler = data::SamplerKind::sequential;  ///< order in which samples are read
  std::uint64_t seed = 0;                                     ///< seed of the sampler
  std::int64_t step = 1;               ///< the batch is that of this step of a run, from 1, without accumulation
  std::vector<std::string> layers;     ///< globs of the linears that are reported; empty: all
  bool blocks = false;                 ///< print the spread over rows or blocks
  std::string routes;                  ///< recipe, bf16 or fp32 with whose routes those of each recipe are compared
  bool sensitivity = false;            ///< measure the effect of each GEMM alone on loss and gradient
  std::int64_t batches = 1;            ///< batches over which changes of the loss are measured
  std::optional<double> recommend;     ///< sum of harm beyond noise, in nats, below which linears stay in FP8
  std::string recommend_recipe;        ///< recipe of the linears that hurt; empty: they run in bf16
  std::string output;                  ///< path of the recommendation, a configuration for fp8-step
  bool force = false;                  ///< replace the output if it exists
  std::int64_t top = 0;                ///< rows of a table; 0: all
  std::optional<Bisection> bisection;  ///< instead of everything above from `recipes` on, except the batch
};

/// `precision` under one of `recipes`. Where there are several, --rowwise-single-copy and --fuse-projections are left
/// out under those that exclude them, unless all do, which check_precision() refuses.
PrecisionConfig precision_under(const PrecisionConfig& precision, const Recipes& recipes, const std::string& recipe);

/// The precision with whose routes InspectConfig::routes compares.
PrecisionConfig precision_of_routes(const InspectConfig& config);

/// {"precision", "recipe"}; the recipe is null unless fp8. With fp8 also the settings of FP8, by the names of flags.
json::Value phase_of(const PrecisionConfig& precision);

/// "recipe" in a configuration: a string, or with recipes of linears an array of the values of --recipe.
json::Value recipe_value(const PrecisionConfig& precision);

/// A configuration with which fp8-step computes FP8 as `precision` does, see fp8-config(5): precision, recipe, and what
/// is not at its default and has an effect. Without device.
json::Value configuration_of(const PrecisionConfig& precision);

/// The options of a ParameterStore for a precision; casts are counted in `counts`, which may be null.
shard::StoreOptions store_options(const PrecisionConfig& precision, quant::CastCounts* counts);

/// Sets what training adds to the spec of a model: what is stored and in which format, sharding, micro-batches.
void add_training(const RunConfig& config, shard::ModelSpec& spec);

}  // namespace fp8::settings
