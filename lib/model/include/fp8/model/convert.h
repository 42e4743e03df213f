/// From a Hugging Face folder or any trainable checkpoint to one FP8-eligible checkpoint: every tensor is found under
/// its name with its shape, and every linear gets one fate and a reason. Tensors stream through a buffer of fixed size.
/// Weights are never fused, padded or quantized here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/dtype/dtype.h"
#include "fp8/model/initialize.h"
#include "fp8/model/parameters.h"
#include "fp8/model/record.h"

namespace fp8::model {

/// What to write and how.
struct ConvertOptions {
  std::optional<dtype::DType> dtype{};  ///< of the weights: f32 or bf16; nothing: as stored (f16 becomes f32, exactly)
  std::optional<FateOptions>
      fates{};              ///< nothing: fates that a checkpoint records are kept, a folder gets the defaults
  bool merge = false;       ///< take a checkpoint whole, shards and optimizer state included
  bool force = false;       ///< replace an output that exists
  bool dry_run = false;     ///< check everything, write nothing
  Origin origin{};          ///< for /provenance
  ProgressSink progress{};  ///< may be empty
};

/// One linear of the table that is shown: all linears, and the LM head, which may be a tied embedding.
struct LinearRow {
  std::string name;                 ///< Hugging Face name
  std::vector<std::int64_t> shape;  ///< [out, in]
  bool fp8 = false;                 ///< its fate
  std::string reason;               ///< why not FP8; empty for FP8
  bool aligned = false;             ///< whether both extents divide by 16
};

/// The linears of a parameter table in its order; of a tied model the LM head is the last row.
std::vector<LinearRow> linear_rows(const hf::Config& config, const std::vector<Parameter>& table);

/// What was written, or would have been.
struct ConvertReport {
  std::string kind;                ///< of the output: model or training
  std::vector<LinearRow> linears;  ///< in the order of computation
  std::int64_t tensors = 0;        ///< number of weights
  std::int64_t parameters = 0;     ///< number of their elements
  std::uint64_t bytes = 0;         ///< of all tensors written
};

/// Converts `source` (a Hugging Face folder or a checkpoint) to the single file `output`. Throws Error that names
/// missing, extra and mis-shaped tensors, and for a quantized checkpoint or one of several shards without `merge`; then
/// nothing is left behind. With `merge` a training checkpoint stays one, optimizer state and /train included; without,
/// only its weights are taken. Deterministic.
ConvertReport convert(const std::string& source, const std::string& output, const ConvertOptions& options);

/// Throws Error unless the checkpoint's weights are exactly those of `table`, in name and shape.
void check_weights(const ckpt::Checkpoint& checkpoint, const std::vector<Parameter>& table);

/// Sets the fates that the checkpoint records for its weights; a weight without a record keeps what `table` says.
void take_fates(const ckpt::Checkpoint& checkpoint, std::vector<Parameter>& table);

}  // namespace fp8::model
