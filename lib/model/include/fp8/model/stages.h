/// Pipeline parallelism: the division of a model into stages of whole layers, and the order in which a stage computes
/// its micro-batches. The first stage has the embedding, and the last one the final norm and the LM head. Nothing here
/// communicates or allocates.
///   P stages, M micro-batches, L layers
/// Source of the schedule: PipeDream-Flush (1F1B), arXiv:2006.09503; Megatron-LM, arXiv:2104.04473.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fp8/hf/config.h"
#include "fp8/model/parameters.h"

namespace fp8::model {

/// The layers of one stage.
struct StageRange {
  int number = 0;      ///< from 0
  int stages = 1;      ///< P
  int first = 0;       ///< first layer, from 0
  int last = 0;        ///< one past the last layer
  int all_layers = 0;  ///< L

  /// Whether the stage has the embedding.
  bool begins() const { return number == 0; }
  /// Whether the stage has the final norm and the head.
  bool ends() const { return number + 1 == stages; }
  /// Whether the stage has a unit of Parameter::unit.
  bool has(int unit) const { return unit == 0 ? begins() : unit > all_layers ? ends() : unit > first && unit <= last; }
};

/// The stage `number` of those with so many layers each.
StageRange stage_of(std::span<const int> layers, int number);

/// FLOPs of forward and backward over one token, by unit.
struct UnitCosts {
  double embedding = 0;
  std::vector<double> layers{};
  double head = 0;
};

/// The FLOPs of training_flops_per_token(), with those of attention over half of `length` tokens, by unit. The
/// embedding adds a row in backward. FLOPs of linears in FP8 count `fp8_cost` times.
UnitCosts unit_costs(const hf::ModelConfig& config, const std::vector<Parameter>& table, std::int64_t length,
                     double fp8_cost = 1);

/// The cost of each stage.
std::vector<double> stage_costs(const UnitCosts& costs, std::span<const int> layers);

/// Layers of each stage, at least 1: the largest cost is as small as possible, and the others are as even as that
/// allows. Throws Error if there are more stages than layers.
std::vector<int> divide_layers(const UnitCosts& costs, int stages);

/// What a stage computes for one micro-batch.
struct StageAction {
  bool backward = false;
  int micro_batch = 0;
  /// Equal in both.
  bool operator==(const StageAction&) const = default;
};

/// The actions of stage `stage` of P (1F1B): forward for min(M, P - 1 - stage) micro-batches, then forward and backward
/// in turn, then backward for the rest. At most min(M, P - stage) micro-batches are between forward and backward.
/// Backward takes micro-batches in the order 0 to M - 1, so that sums of gradients have the bits of one stage.
std::vector<StageAction> stage_schedule(int stages, int stage, int micro_batches);

/// The share of a step in which a stage waits for others, as a mean over the stages, if only their computation takes
/// time and backward takes twice that of forward: (P - 1) / (M + P - 1) for equal costs.
double expected_bubble(std::span<const double> costs, int micro_batches);

/// The parameters of a stage alone, for counts of what it computes.
std::vector<Parameter> table_of_stage(const std::vector<Parameter>& table, const StageRange& stage);

/// "9,8,8,7".
std::string text_of_stages(std::span<const int> layers);

}  // namespace fp8::model
