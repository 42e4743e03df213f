/// Shared by quantize, dequantize and export: reading a stored weight, and starting the output file.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/ckpt/writer.h"
#include "fp8/convert/cast_matrix.h"
#include "fp8/model/parameters.h"
#include "fp8/model/record.h"

namespace fp8::convert {

/// weights/NAME.
std::string stored_name(const model::Parameter& p);

/// A weight of `source`, in its stored format; a vector is a matrix of one column. `source` must outlive the result.
StoredMatrix stored_matrix(const ckpt::Checkpoint& source, const model::Parameter& p);

/// Throws Error that names the weight unless it is f32 or bf16.
void check_float(const ckpt::Checkpoint& source, const model::Parameter& p);

/// The description of a weight of `source` in the output: unchanged except for the format and p's compute precision.
ckpt::TensorMeta meta_in_output(const ckpt::Checkpoint& source, const model::Parameter& p, dtype::DType type);

/// Whether a weight of `source` is stored as FP8 or FP4 codes.
bool is_codes(const ckpt::Checkpoint& source, const model::Parameter& p);

/// Whether a checkpoint holds codes with scales: a quantized one, or one of a run that trains adapters beside
/// codes.
bool holds_codes(const ckpt::Checkpoint& source);

/// Throws Error unless the weights of a checkpoint that holds codes are those of `table`, with scales for all codes,
/// amaxes for those of FP4, and neither for anything else.
void check_quantized(const ckpt::Checkpoint& source, const std::vector<model::Parameter>& table);

/// Throws Error if scales belong to none of the weights `coded`, or an amax to none of FP4 codes.
void check_no_others(const ckpt::Checkpoint& source, const std::set<std::string>& coded);

/// Throws Error unless the FP4 codes of a weight have an amax, one f32.
void check_amax(const ckpt::Checkpoint& source, const std::string& weight);

/// The grid of the factors of a weight's codes, by the type and shape of its scales. Throws Error unless they are
/// one, one per row or one per block, for FP4 codes E4M3 with an amax.
FactorGrid grid_of(const ckpt::Checkpoint& source, const model::Parameter& p);

/// Elements that share a factor of a weight's codes. Throws as grid_of().
quant::Granularity scaling_of(const ckpt::Checkpoint& source, const model::Parameter& p);

/// The scales of a weight's codes as stored. Throws Error if the amax of FP4 codes is 0 and a scale is not, or above 0
/// and below kLeastFp4Amax.
StoredScales stored_scales(const ckpt::Checkpoint& source, const std::string& weight);

/// The factors of a weight's codes in row-major order. Throws as stored_scales() and StoredScales::factors().
std::vector<float> read_scales(const ckpt::Checkpoint& source, const std::string& weight);

/// Writes the scales of a weight, and the amax of FP4 codes.
void write_scales(const std::string& weight, const StoredScales& scales, ckpt::ModelWriter& writer);

/// Bytes of a weight [rows, cols] as codes of this format with these scales.
std::uint64_t bytes_of_codes(const model::Parameter& p, dtype::DType format, quant::Granularity scaling);

/// Passes a weight that is not codes to `write` in the format `type` (f32 or bf16). Throws as store_rows() does.
void write_as(const StoredMatrix& x, dtype::DType type, const WriteBytes& write);

/// The output file.
struct Target {
  std::string path;             ///< path of the file
  ckpt::FileKind kind;          ///< model or quantized
  json::Value config;           ///< content of /config
  std::uint64_t weights_bytes;  ///< size of all weights that the file will hold
  model::Origin origin;         ///< the new last entry of /provenance
  bool force;                   ///< replace a file that exists
  bool dry_run;                 ///< check that the output could be written, and write nothing
};

/// Checks that the target can be written, with the unknown tensors of `source` too, and verifies the digests of
/// `source`; starts the target with the documents (returns nothing under dry_run).
std::optional<ckpt::ModelWriter> start_output(const ckpt::Checkpoint& source, const Target& target);

}  // namespace fp8::convert
