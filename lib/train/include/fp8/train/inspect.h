/// Inspection of a checkpoint: what FP8 does to the operands and products of each linear in one forward and backward
/// pass over a batch. Collective: every rank calls with the same configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/train/evaluate.h"

namespace fp8::train {

/// Flags of precision as one value, and what they say.
struct PrecisionSide {
  std::string flags;                         ///< as given: "--precision fp8 --recipe rowwise"
  PrecisionConfig precision;                 ///< of GEMMs and activations
  std::optional<device::DeviceType> device;  ///< as in EvalConfig
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
  std::vector<std::string> recipes;                           ///< each is inspected in turn
  bool all_recipes = false;                                   ///< of `recipes` only those that fit FP8 codes
  data::SamplerKind sampler = data::SamplerKind::sequential;  ///< order in which samples are read
  std::uint64_t seed = 0;                                     ///< of the sampler
  std::int64_t step = 1;               ///< the batch is that of this step of a run, from 1, without accumulation
  std::vector<std::string> layers;     ///< globs of the linears that are reported; empty: all
  bool blocks = false;                 ///< with the spread over rows or blocks
  bool sensitivity = false;            ///< with the effect of each GEMM alone on loss and gradient
  std::optional<double> recommend;     ///< largest sum of |change of the loss|, in nats, of the linears left in FP8
  std::string output;                  ///< of the recommendation: a configuration for fp8-step
  bool force = false;                  ///< replace the output if it exists
  std::optional<Bisection> bisection;  ///< instead of everything above from `recipes` on, except the batch
};

/// For each recipe {"type":"inspect"}, then {"type":"operand"} and {"type":"gemm"} records, as fp8-inspect(1) describes
/// them. The pass runs in the recipe, like a step of training, but the amaxes of activations and gradients are those of
/// all ranks. With `sensitivity` {"type":"sensitivity"} records follow, with `recommend` {"type":"recommendation"}.
/// Records go to the hook of rank 0. Returns no if the recommendation leaves no linear in FP8, else done. Throws as
/// run().
Exit inspect_checkpoint(const InspectConfig& config, comm::Communicator& host_comm, const Hooks& hooks);

}  // namespace fp8::train
