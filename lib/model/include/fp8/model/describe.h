/// What a checkpoint holds, as a value to print: its configuration, tensors, scales, state of the run, provenance; and
/// how far two checkpoints are apart. Reads in pieces; prints nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/json/value.h"
#include "fp8/model/initialize.h"

namespace fp8::model {

/// What the elements of a tensor are like. Codes count as the values they stand for, without scales.
struct TensorStatistics {
  double mean = 0;             ///< of all elements
  double rms = 0;              ///< root of the mean square
  double absmax = 0;           ///< largest magnitude
  std::int64_t nonfinite = 0;  ///< NaN and infinite elements, left out of the others
};

/// Statistics of a tensor; nothing for one of integers. Reads it whole.
std::optional<TensorStatistics> statistics(const ckpt::Checkpoint& checkpoint, const std::string& name);

/// The record that fp8-info prints: {"type": "info", "path", "kind", "version", "files", "config", "parameters",
/// "bytes", "tensors": [{"name", "dtype", "shape", "fate", "reason"}], "train", "tokenizer", "provenance"}. A scale
/// that is one number has it as "value". With `with_statistics` each tensor has mean, rms, absmax, nonfinite too.
json::Value describe(const ckpt::Checkpoint& checkpoint, bool with_statistics, const ProgressSink& progress = {});

/// How far apart one tensor of two checkpoints is.
struct TensorDistance {
  std::string name;        ///< full name
  std::string note;        ///< "only in A", "only in B", "shapes differ", "formats differ", "bytes differ"; else empty
  double max_abs = 0;      ///< largest |a - b|; NaN where exactly one of two elements is NaN
  double relative_l2 = 0;  ///< |a - b| / |a|; 0 for equal tensors, infinite where only a is zero
  bool equal = false;      ///< all elements equal (NaN equals NaN), whatever the formats they are stored in
};

/// How far apart two checkpoints are.
struct Distance {
  std::vector<TensorDistance> tensors;  ///< of both, sorted by name
  bool same_config = false;             ///< the configurations compute the same function
  bool same_train = false;              ///< /train is equal; does not count for `equal`
  bool equal = false;                   ///< same configuration, same tensors
};

/// Compares all tensors of two checkpoints, whatever kind they are of and whatever ranks wrote them.
Distance distance(const ckpt::Checkpoint& a, const ckpt::Checkpoint& b, const ProgressSink& progress = {});

}  // namespace fp8::model
