/// Merging of LoRA adapters into the weights of a source: rows of W + scaling B A. Private to this crate.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8/hf/config.h"
#include "fp8/model/parameters.h"
#include "source.h"

namespace fp8::convert {

/// Whether the weight has an adapter in the source.
bool has_adapter(const Source& source, const model::Parameter& linear);

/// A merged weight. A and B are read once; rows of W as they are asked for.
class MergedRows {
 public:
  /// `source` has the adapters of `lora`, and must outlive the object.
  MergedRows(const Source& source, const model::Parameter& linear, const hf::LoraConfig& lora);
  /// Rows [begin, end) of the weight in f32: the products of B and A are summed over the rank in f32, scaled, and added
  /// to W. Deterministic on any number of threads.
  void read(std::int64_t begin, std::int64_t end, std::span<float> out);
  /// L2 norm of what the adapter adds to the weight, all elements together; 0 for an adapter that was not trained.
  double change() const;

 private:
  RowReader weight_;
  std::int64_t rank_, cols_;
  float scaling_;
  std::vector<float> a_, b_;  // [rank, cols], [rows, rank]
};

}  // namespace fp8::convert
