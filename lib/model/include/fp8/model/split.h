/// Division of a model over the ranks of tensor parallelism: the block of each parameter that a rank has, and the sizes
/// that its attention and MLP compute. Rows of q, k, v, gate, up and of the vocabulary are divided, and
/// columns of o and down; norms, routers, experts and the biases of o and down are not. Key and value heads that are
/// fewer than the ranks are on several ranks. Nothing here communicates.
///   T ranks of tensor parallelism, H query heads, G key/value heads, F intermediate, V vocabulary
#pragma once

#include <vector>

#include "fp8/hf/config.h"
#include "fp8/model/parameters.h"

namespace fp8::model {

/// A rank among those of tensor parallelism.
struct TensorRank {
  int rank = 0;                           ///< its number, from 0
  int ranks = 1;                          ///< T
  const quant::Recipe* recipe = nullptr;  ///< recipe of the model: blocks of its scales are not divided in the MLP
};

/// A size of a model, and of the part that a rank computes.
struct DividedSize {
  std::int64_t whole = 0, local = 0;
  /// Whether the rank has a part.
  bool divided() const { return local < whole; }
};

/// The sizes that ranks divide.
struct DividedSizes {
  DividedSize heads;             ///< H, of queries
  DividedSize key_value_heads;   ///< G; at least one on each rank
  DividedSize intermediate;      ///< F; not divided if all layers have experts
  DividedSize vocabulary;        ///< V
  std::int64_t head_dim = 0;     ///< D, never divided
  std::int64_t first_token = 0;  ///< first token of the rank's part of the vocabulary

  /// Columns of the queries that the rank computes.
  std::int64_t query() const { return heads.local * head_dim; }
  /// Columns of its keys, and of its values.
  std::int64_t key_value() const { return key_value_heads.local * head_dim; }
};

/// The sizes of a rank that has all.
DividedSizes whole_sizes(const hf::ModelConfig& config);

/// The sizes that a rank's attention, MLP, embedding and head compute. Throws Error with the reason unless T ranks can
/// divide the model: T divides H; T divides G or G divides T; F and V have a block for each rank.
DividedSizes local_sizes(const hf::ModelConfig& config, const std::vector<Parameter>& table, const TensorRank& at);

/// The table with the blocks of a rank: shape, slot_row, whole, bounds, block and copies. `table` has whole parameters
/// with their precisions, which stay as they are. Throws Error as local_sizes().
std::vector<Parameter> local_table(const hf::ModelConfig& config, std::vector<Parameter> table, const TensorRank& at);

/// The largest number that divides all first indices of blocks but 0; 0 if the parameter has one block.
std::int64_t grain_of(const Parameter& p);

/// Elements of a block of scales of the recipe, if the first index of a block of the parameter is inside one; else 0.
std::int64_t straddling_block(const Parameter& p, const quant::Recipe& recipe);

}  // namespace fp8::model
