/// Everything a run is told, resolved: fp8-step's flags as a value. What only one rank could know (paths, times) is not
/// part of what a run computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

/// What the matmuls of linear layers run in.
enum class Precision : std::uint8_t { fp32, bf16, fp8 };
/// fp32, bf16, fp8.
std::string_view name_of(Precision p);

/// Precision and everything that goes with it; also what an evaluation needs.
struct PrecisionConfig {
  Precision precision = Precision::bf16;          ///< --precision
  dtype::DType activations = dtype::DType::bf16;  ///< --activations; f32 with fp32
  std::string recipe = "tensorwise";              ///< --recipe, for fp8
  std::optional<bool> power_of_2;                 ///< --power-of-2-scales; nothing: the recipe's default
  std::optional<bool> fp8_all_gather;             ///< --fp8-all-gather; nothing: where the recipe allows
  bool emulate = false;                           ///< --emulate: FP8 values multiplied as bf16, on a GPU too
  gemm::Accumulation accumulation = gemm::Accumulation::f32;  ///< --accumulate, for fp8 on the CPU
  model::LinearPrecisionOptions precisions;                   ///< --filter, --auto-filter, --fp8-lm-head

  /// The recipe; null unless fp8.
  const quant::Recipe* recipe_or_null() const;
  /// Whether scales are powers of two under this configuration.
  bool power_of_2_scales() const;
};

/// One run.
struct RunConfig {
  std::string model, data, out;                            ///< paths
  bool any_tokenizer = false;                              ///< data of another tokenizer than the model's is taken
  std::string eval_data;                                   ///< path; empty: no evaluation
  std::int64_t seq_length = 0;                             ///< T; 0: the model's max_position_embeddings, 1024 at most
  std::int64_t batch_size = 8;                             ///< sequences per rank and micro-batch
  std::int64_t grad_accumulation = 1;                      ///< micro-batches a step
  data::SamplerKind sampler = data::SamplerKind::shuffle;  ///< order of samples
  std::int64_t steps = 0;                                  ///< of the whole run; 0: from epochs
  double epochs = 0;                                       ///< passes over the data, when steps is 0
  std::int64_t until_step = 0;                             ///< stop there; 0: at the end
  std::uint64_t seed = 0;                                  ///< of the sampler and of stochastic rounding
  PrecisionConfig precision;                               ///< what matmuls run in
  std::optional<device::DeviceType> device;                ///< --device; nothing: a GPU where every rank has one
  optim::Settings optimizer;                               ///< AdamW
  optim::Schedule schedule;                                ///< steps filled in by run()
  double warmup_ratio = 0;                                 ///< of steps, when schedule.warmup is 0
  double clip = 1;                                         ///< norm gradients are clipped to; 0: no clipping
  dtype::DType master = dtype::DType::f32, moments = dtype::DType::f32;  ///< how they are stored
  int zero = 3;                                                          ///< stage
  bool reshard_after_forward = true;                                     ///< of stage 3
  model::Recompute recompute = model::Recompute::none;                   ///< activations
  std::int64_t save_every = 0;                                           ///< steps; 0: see save_seconds
  double save_seconds = 0;                                               ///< between saves; 0: only the last step
  bool rolling = false;                                                  ///< only the newest such checkpoints stay
  std::int64_t keep = 0;                                                 ///< checkpoints; 0: all
  std::int64_t milestone_every = 0;                                      ///< steps whose checkpoints stay; 0: none
  bool keep_best = false;          ///< the checkpoint of the lowest evaluation stays
  bool async_save = false;         ///< steps go on while a save is written
  std::int64_t log_every = 1;      ///< steps between records
  std::int64_t paranoid = 0;       ///< steps between those computed twice; 0: none
  std::int64_t eval_every = 0;     ///< steps; 0: never
  std::int64_t eval_batches = 0;   ///< batches an evaluation reads; 0: all of the file
  std::int64_t profile_first = 0;  ///< first step to be profiled, from 1
  std::int64_t profile_last = 0;   ///< last one; 0: none is
  bool dry_run = false;            ///< check and plan, write nothing
  std::string tool_version;        ///< for provenance
  std::string command;             ///< for provenance
  json::Value flags;               ///< resolved flags, for the first record
};

/// How parameters are kept under a configuration.
StoreOptions store_options(const PrecisionConfig& precision, quant::CastCounts* counts);

/// What may not change when a run is resumed, by flag name.
json::Value fixed_settings(const RunConfig& config, std::int64_t global_batch, const std::string& model_digest,
                           const std::string& data_digest);

/// The first setting of two objects that differs, as a message names it: "--lr (0.1JOINT0.2)"; digests without values.
/// Empty: none does. Settings that `one` lacks are not looked at.
std::string first_difference(const json::Value& one, const json::Value& other, const std::string& joint);

/// Throws Error naming the first setting that differs.
void check_same_settings(const json::Value& before, const json::Value& now, const std::string& path);

/// Throws AgreedError naming the first rank whose settings are not rank 0's, and the first that differs. Collective.
void check_same_on_all_ranks(comm::Communicator& world, const json::Value& mine);

}  // namespace fp8::train
