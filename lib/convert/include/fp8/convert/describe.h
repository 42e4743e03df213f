/// Contents of a checkpoint as a JSON value: configuration, tensors, scales, run state, provenance; and the difference
/// of two checkpoints. Reads in pieces; prints nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/json/value.h"
#include "fp8/model/initialize.h"

namespace fp8::convert {

/// Statistics of a tensor's elements. Codes count as the values they represent, without scales.
struct TensorStatistics {
  double mean = 0;             ///< mean of all elements
  double rms = 0;              ///< root of the mean square
  double absmax = 0;           ///< largest magnitude
  std::int64_t nonfinite = 0;  ///< NaN and infinite elements, excluded from the other fields
};

/// Statistics of a tensor; nothing for integers. Reads the whole tensor.
std::optional<TensorStatistics> statistics(const ckpt::Checkpoint& checkpoint, const std::string& name);

/// The record that fp8-info prints: {"type": "info", "path", "kind", "version", "files", "config", "parameters",
/// "bytes", "tensors": [{"name", "dtype", "shape", "precision", "reason"}], "train", "tokenizer", "template",
/// "huggingface": [names of files], "provenance"}. A single scale has its value as "value". With `with_statistics` each
/// tensor also has mean, rms, absmax, nonfinite.
json::Value describe(const ckpt::Checkpoint& checkpoint, bool with_statistics,
                     const model::ProgressSink& progress = {});

/// Difference of one tensor between two checkpoints.
struct TensorDistance {
  std::string name;        ///< full name
  std::string note;        ///< "only in A", "only in B", "shapes differ", "formats differ", "bytes differ"; else empty
  double max_abs = 0;      ///< largest |a - b|; NaN where exactly one of two elements is NaN
  double relative_l2 = 0;  ///< |a - b| / |a|; 0 for equal tensors, infinite where only a is zero
  bool equal = false;      ///< all elements equal (NaN equals NaN), independent of the stored formats
};

/// Difference of two checkpoints.
struct Distance {
  std::vector<TensorDistance> tensors;  ///< tensors of both, sorted by name
  bool same_config = false;             ///< the configurations compute the same function
  bool same_train = false;              ///< /train is equal; ignored by `equal`
  bool equal = false;                   ///< same configuration, same tensors
};

/// Compares all tensors of two checkpoints of any kinds and numbers of shards.
Distance distance(const ckpt::Checkpoint& a, const ckpt::Checkpoint& b, const model::ProgressSink& progress = {});

}  // namespace fp8::convert
