/// Options of a store of parameters: the formats in which they are kept, gathered and reduced.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fp8/linear/linear.h"
#include "fp8/quant/history.h"

namespace fp8::shard {

using dtype::DType;

/// Settings of a delayed recipe.
struct DelayedOptions {
  std::int64_t history = 1024;  ///< amaxes of a tensor, at least 1
  std::int64_t margin = 0;      ///< scales are divided by 2^margin
  quant::AmaxAlgorithm algorithm =
      quant::AmaxAlgorithm::max;  ///< choice of the amax of the history that gives the scale
};

/// How parameters are kept and gathered.
struct StoreOptions {
  DType compute = DType::bf16;         ///< format of activations and of weights outside FP8
  linear::LinearPrecision fp8;         ///< recipe of FP8 linears without one of their own; null: none is FP8
  std::optional<bool> power_of_2;      ///< scales of linears with own recipes are powers of two; nothing: by the recipe
  DelayedOptions delayed;              ///< settings of a delayed recipe
  bool fp8_all_gather = true;          ///< FP8 all-gather, if the recipe allows it
  DType master = DType::f32;           ///< f32 or bf16
  DType moments = DType::f32;          ///< f32 or bf16
  DType reduce = DType::f32;           ///< format in which gradients travel between ranks: f32 or bf16
  int zero = 3;                        ///< 1: optimizer state sharded; 2: gradients too; 3: weights too
  bool reshard_after_forward = true;   ///< whether weights are gathered again for backward, with zero 3
  bool several_micro_batches = false;  ///< per step, whose gradients are summed
  bool training = true;                ///< false: only weights, for evaluation
  bool updates = true;                 ///< whether training has moments, for update(), or only gradients
  double expert_rows = 2;              ///< model::ExpertExchange::room(), if ranks share experts
  std::vector<int> stages{};           ///< layers of each stage of mesh.stages(); empty: one stage has all
};

}  // namespace fp8::shard
