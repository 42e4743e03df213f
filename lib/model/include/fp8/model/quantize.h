/// From a checkpoint to one of FP8 codes and scales, and back to one that can be trained. The casts are those of quant,
/// bit for bit; here is which weights are cast, and what was lost in each. Tensors pass through memory in pieces,
/// twice: once for their scales and once for their codes. Nothing is trained and nothing is exported here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/dtype/dtype.h"
#include "fp8/model/initialize.h"
#include "fp8/model/record.h"
#include "fp8/quant/recipe.h"

namespace fp8::model {

/// What to write and how.
struct QuantizeOptions {
  quant::Granularity scaling = quant::Granularity::tensor;  ///< tensor: a scale for each weight; vector: for each row
  dtype::DType format = dtype::DType::e4m3;                 ///< of the codes: e4m3 or e5m2
  bool power_of_2 = false;                                  ///< scales rounded down to powers of two
  std::vector<std::string> filters{};                       ///< name globs of weights to leave as they are
  bool force = false;                                       ///< replace an output that exists
  bool dry_run = false;                                     ///< cast everything, write nothing
  Origin origin{};                                          ///< for /provenance
  ProgressSink progress{};                                  ///< may be empty
};

/// What became of one weight x when it was cast; y is its codes times their scales.
struct QuantizedTensor {
  std::string name;                 ///< Hugging Face name
  std::vector<std::int64_t> shape;  ///< [out, in]
  std::optional<double> sqnr_db{};  ///< 20 log10(|x| / |x - y|), norms over the tensor; nothing where x = y
  double saturated_share = 0;       ///< of the elements: clamping lost something
  double underflow_share = 0;       ///< of the elements: not zero before, zero after
  float scale_min = 0;              ///< least of what its codes are multiplied by
  float scale_max = 0;              ///< greatest of them
};

/// What was written, or would have been.
struct QuantizeReport {
  std::vector<QuantizedTensor> tensors;  ///< the weights that were cast, in the order of computation
  std::int64_t weights = 0;              ///< number of all weights
  std::uint64_t bytes_before = 0;        ///< of the weights in the source
  std::uint64_t bytes = 0;               ///< of the weights written, scales included
};

/// Casts the weights of `source` whose fate is fp8 and writes the checkpoint `output`, of kind quantized, as one file:
/// codes in /weights, in /scales what they are multiplied by, that is the f32 reciprocal of the scale they were cast
/// with. All else is copied: other weights, configuration, tokenizer, unknown datasets; of a training checkpoint only
/// the weights are taken. Throws Error, and leaves nothing behind, when the source is quantized already, its weights
/// are not those of its configuration, none of them is to be cast, or one to be cast holds NaN or infinity, which it
/// names. Deterministic, independent of the number of threads.
/// Source: torchao float8_utils (scale rule, saturating cast).
QuantizeReport quantize(const std::string& source, const std::string& output, const QuantizeOptions& options);

/// What to write and how.
struct DequantizeOptions {
  dtype::DType dtype = dtype::DType::f32;  ///< of all weights: f32 (exact codes times scales) or bf16 (those rounded)
  bool force = false;                      ///< replace an output that exists
  bool dry_run = false;                    ///< check everything, write nothing
  Origin origin{};                         ///< for /provenance
  ProgressSink progress{};                 ///< may be empty
};

/// A weight that was codes.
struct DequantizedTensor {
  std::string name;                          ///< Hugging Face name
  std::vector<std::int64_t> shape;           ///< [out, in]
  dtype::DType format = dtype::DType::e4m3;  ///< of the codes
  std::int64_t scales = 0;                   ///< how many scales they had
};

/// What was written, or would have been.
struct DequantizeReport {
  std::vector<DequantizedTensor> tensors;  ///< the weights that were codes, in the order of computation
  std::int64_t weights = 0;                ///< number of all weights
  std::uint64_t bytes_before = 0;          ///< of the weights in the source, scales included
  std::uint64_t bytes = 0;                 ///< of the weights written
};

/// Writes the checkpoint `output`, of kind model, as one file, in which each code of the quantized checkpoint `source`
/// is its value times its scale, multiplied in f32. Throws Error, and leaves nothing behind, when the source is not
/// quantized, codes and scales do not fit each other, a scale is no positive number, or a product is not finite; the
/// tensor is named.
DequantizeReport dequantize(const std::string& source, const std::string& output, const DequantizeOptions& options);

}  // namespace fp8::model
