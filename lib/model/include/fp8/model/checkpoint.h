/// The parameter table of a model and a file of its weights: which tensors there must be, and the compute precisions
/// that a checkpoint records.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/model/parameters.h"

namespace fp8::model {

/// A row of the table of linears, which includes the LM head, even if tied to the embedding.
struct LinearRow {
  std::string name;                 ///< Hugging Face name
  std::vector<std::int64_t> shape;  ///< [out, in]
  bool fp8 = false;                 ///< whether it computes in FP8
  std::string reason;               ///< why not FP8; empty for FP8
  bool aligned = false;             ///< whether both extents are multiples of 16
  quant::GemmSet gemms{};           ///< GEMMs that run in FP8, if the linear does
  std::string scaling{};            ///< granularity of the scales of kept codes: tensor, row or block; else empty
  std::vector<std::int64_t> padded_from{};  ///< shape in the source if it was padded, else empty
  std::string recipe{};                     ///< recipe of an FP8 linear that has one of its own; else empty
  std::string fused_with{};                 ///< projection with which it is computed as one linear; else empty
};

/// Whether all extents are multiples of 16, as FP8 GEMMs need.
bool aligned(const std::vector<std::int64_t>& shape);

/// The linears of a parameter table in order; for a tied model the LM head is the last row.
std::vector<LinearRow> linear_rows(const hf::ModelConfig& config, const std::vector<Parameter>& table);

/// Throws Error unless the tensors of a file are exactly those of `table`, in name and shape. `names` are all names in
/// the file `path`; find(name) returns the shape of one, or null.
void check_tensors(const std::string& path, const std::vector<Parameter>& table, const std::vector<std::string>& names,
                   const std::function<const std::vector<std::int64_t>*(const std::string&)>& find);

/// Throws Error unless the checkpoint's weights are exactly those of `table`, in name and shape.
void check_weights(const ckpt::Checkpoint& checkpoint, const std::vector<Parameter>& table);

/// Sets the compute precisions that the checkpoint records for its weights; a weight without a record is unchanged.
void read_precisions(const ckpt::Checkpoint& checkpoint, std::vector<Parameter>& table);

}  // namespace fp8::model
