/// Questions that need many plans: recipes beside bf16, what makes a run fit, the fastest settings for some ranks, and
/// numbers of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8/plan/estimate.h"

namespace fp8::plan {

/// A model, the settings of its plan and the machine.
struct Question {
  const Model& model;
  const settings::PlanConfig& config;
  const MaybeMachine& machine;

  /// Device of the plan: that of --device or, without it, of the machine, or, without both, a GPU.
  device::DeviceType device() const;
  /// The settings with the precision of a recipe: bf16, fp32, or FP8.
  settings::PlanConfig under(const std::string& recipe) const;
  /// The assumptions that --as, --vp and --imbalance state.
  Assumptions assumptions() const;
  /// One run of the settings `c`.
  Estimate estimate(const settings::PlanConfig& c) const;
};

/// Leaves recipes out of --recipe all whose GEMMs the GPU lacks: nvfp4 if it is not known to have FP4 GEMMs, and
/// blockwise if it is known to be no Hopper. Throws Error if nvfp4 is asked for by name, for all linears or some, and
/// the GPU of `machine` has no FP4 GEMMs.
void check_recipes(settings::PlanConfig& config, device::DeviceType device, const MaybeMachine& machine);

/// Each recipe that is asked for, in this order, after bf16 if there is a machine; with the speed relative to bf16.
std::vector<Estimate> compare(const Question& q);

/// A change of settings, and what it does to a run.
struct Change {
  std::string flags;      ///< "--recompute full"
  std::size_t saved = 0;  ///< bytes of the rank that needs the most
  bool fits = false;      ///< whether the run then fits
};

/// The three changes of one setting of `c` that save the most memory, of those that save any.
std::vector<Change> remedies(const Question& q, const settings::PlanConfig& c, const Estimate& now);

/// --zero 2 for a run of --zero 1, which keeps the gradients of all parameters in f32 on each rank. Nothing for other
/// runs, and if it saves nothing.
std::optional<Change> sharded_gradients(const Question& q, const settings::PlanConfig& c, const Estimate& now);

/// A run beside the same settings in bf16.
struct Pair {
  Estimate asked;                ///< with the speed relative to bf16, if that is planned
  std::optional<Estimate> bf16;  ///< nothing without a machine, and for fp32
};

/// The runs under `recipe` on each number of ranks of --sweep. Throws Error for numbers that the mesh does not divide.
std::vector<Pair> sweep(const Question& q, const std::string& recipe);

/// Settings that --fit has found.
struct Candidate {
  settings::PlanConfig config;
  Estimate estimate;
};

/// Whether one is faster than the other, in the middle of their intervals.
bool is_faster(const Candidate& one, const Candidate& other);

/// What --fit found.
struct Fit {
  std::vector<Candidate> fastest;  ///< at most five that fit, the fastest first, with the speed relative to bf16
  std::optional<Estimate> bf16;    ///< the first of them in bf16; nothing without any, and for fp32
  std::int64_t fewest_ranks = 0;   ///< the least power of two of ranks on which some settings fit; 0: none was found
  std::int64_t tried = 0;          ///< settings that were planned
  bool stopped = false;            ///< whether the search was stopped, and settings are left
};

/// How a search is watched and stopped.
struct Watch {
  std::function<void(std::int64_t tried, std::int64_t most)> progress;  ///< called for each of at most so many settings
  std::function<bool()> stop;  ///< asked before each; true ends the search with what it has found
};

/// Searches mesh, micro-batch, recompute and sharding for config.ranks ranks under `recipe`, where a step has as many
/// sequences as the settings give it.
Fit fit(const Question& q, const std::string& recipe, const Watch& watch);

}  // namespace fp8::plan
