/// What quantizing a checkpoint and undoing it share: reading a weight as it is stored, and beginning the file that is
/// written. Private to this crate.
#pragma once

#include <optional>
#include <string>

#include "cast_matrix.h"
#include "fp8/ckpt/checkpoint.h"
#include "fp8/ckpt/writer.h"
#include "fp8/model/parameters.h"
#include "fp8/model/record.h"

namespace fp8::model {

/// weights/NAME.
std::string stored_name(const Parameter& p);

/// A weight of `source`, in the format it has there; a vector is a matrix of one column. `source` must outlive it.
StoredMatrix stored_matrix(const ckpt::Checkpoint& source, const Parameter& p);

/// Throws Error that names the weight unless it is f32 or bf16.
void check_float(const ckpt::Checkpoint& source, const Parameter& p);

/// How a weight of `source` is described in the output: as it was, but for its format and the fate that `p` has.
ckpt::TensorMeta meta_in_output(const ckpt::Checkpoint& source, const Parameter& p, dtype::DType type);

/// The file that is written.
struct Target {
  std::string path;             ///< of the file
  ckpt::Kind kind;              ///< model or quantized
  json::Value config;           ///< its /config
  std::uint64_t weights_bytes;  ///< of all weights it will hold
  Origin origin;                ///< the new last entry of /provenance
  bool force;                   ///< replace a file that exists
  bool dry_run;                 ///< only check that it could be written
};

/// Checks that the target can be written, with the unknown tensors of `source` too, and every byte of `source`; begins
/// the target with the documents, but under dry_run nothing.
std::optional<ckpt::ModelWriter> start_output(const ckpt::Checkpoint& source, const Target& target);

}  // namespace fp8::model
