/// Converts a checkpoint to FP8 or FP4 codes and scales, and back to a trainable one. The casts are those of quant, bit
/// for bit; this file selects the weights to cast and reports the loss of each. Tensors are read twice in pieces: once
/// for the scales and once for the codes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/dtype/dtype.h"
#include "fp8/model/initialize.h"
#include "fp8/model/record.h"
#include "fp8/quant/recipe.h"

namespace fp8::convert {

/// Options of quantize().
struct QuantizeOptions {
  /// One scale per weight (tensor), row (row), block of 128x128 (block128x128, as recipe blockwise), block of 1x32
  /// (block1x32, as recipe mxfp8), or block of 16x16 (block16x16, as recipe nvfp4).
  quant::Granularity scaling = quant::Granularity::tensor;
  dtype::DType format = dtype::DType::e4m3;  ///< format of the codes: e4m3 or e5m2; e2m1 for block16x16
  bool power_of_2 = false;                   ///< scales rounded down to powers of two; block1x32 always
  std::vector<std::string> filters{};        ///< name globs of weights that are copied unchanged
  bool force = false;                        ///< replace an output that exists
  bool dry_run = false;                      ///< cast everything, write nothing
  model::Origin origin{};                    ///< origin for /provenance
  model::ProgressSink progress{};            ///< may be empty
};

/// Result of casting one weight x; y is its codes times their scales.
struct QuantizedTensor {
  std::string name;                 ///< Hugging Face name
  std::vector<std::int64_t> shape;  ///< [out, in]
  std::optional<double> sqnr_db{};  ///< 20 log10(|x| / |x - y|), norms over the tensor; nothing where x = y
  bool infinite = false;            ///< whether y holds infinity: amax is near the largest float; sqnr_db is -infinity
  double saturated_share = 0;       ///< fraction of the elements that saturated
  double underflow_share = 0;       ///< fraction of the elements that underflowed: nonzero before, zero after
  float scale_min = 0;              ///< smallest factor of its codes
  float scale_max = 0;              ///< largest factor of its codes
};

/// The contents of the output, or under dry_run of the output that would be written.
struct QuantizeReport {
  std::vector<QuantizedTensor> tensors;  ///< the weights that were cast, in the order of computation
  std::int64_t weights = 0;              ///< number of all weights
  std::uint64_t bytes_before = 0;        ///< size of the weights in the source
  std::uint64_t bytes = 0;               ///< size of the weights written, scales included
  std::vector<std::string> notes{};      ///< sentences about the source, for the user
};

/// Casts the weights of `source` whose compute precision is fp8 and writes the checkpoint `output`, of kind quantized,
/// as one file: codes in /weights, and in /scales the factors of the codes, the f32 reciprocals of the scales used in
/// the cast (E8M0 for block1x32, else f32); for block16x16 packed codes, E4M3 scales, and in /globals the amax.
/// Everything else is copied: other weights, configuration, tokenizer, unknown datasets; only the weights of a training
/// checkpoint. Throws Error, and leaves no output, when the source is already quantized, its weights do not match its
/// configuration, no weight is to be cast, or a weight to be cast holds NaN or infinity (named). Deterministic,
/// independent of the number of threads. Source: torchao float8_utils (scale rule, saturating cast); for blocks as in
/// quant.
QuantizeReport quantize(const std::string& source, const std::string& output, const QuantizeOptions& options);

/// How the codes among a checkpoint's weights are scaled: tensor, row, block128x128, block1x32 or block16x16; nothing
/// if no weight is stored as codes. Parameters that the checkpoint lacks are skipped. Throws Error naming the weight
/// unless the scales have one of these forms, the same for all. Reads no data.
std::optional<quant::Granularity> stored_scaling(const ckpt::Checkpoint& checkpoint,
                                                 const std::vector<model::Parameter>& table);

/// Throws Error naming the weight unless the codes among a checkpoint's weights are those of linears of layers and
/// E4M3 or E2M1, no scale is bad, see dtype::bad_scale(), and no scale or amax is without codes. Training beside codes
/// needs all three. Reads all scales.
void check_codes_of_linears(const ckpt::Checkpoint& checkpoint, const std::vector<model::Parameter>& table);

/// Options of dequantize().
struct DequantizeOptions {
  dtype::DType dtype =
      dtype::DType::f32;           ///< format of all weights: f32 (exact codes times scales) or bf16 (those rounded)
  bool force = false;              ///< replace an output that exists
  bool dry_run = false;            ///< check everything, write nothing
  model::Origin origin{};          ///< origin for /provenance
  model::ProgressSink progress{};  ///< may be empty
};

/// A weight that was stored as codes.
struct DequantizedTensor {
  std::string name;                          ///< Hugging Face name
  std::vector<std::int64_t> shape;           ///< [out, in]
  dtype::DType format = dtype::DType::e4m3;  ///< format of the codes
  std::int64_t scales = 0;                   ///< number of scales
};

/// The contents of the output, or under dry_run of the output that would be written.
struct DequantizeReport {
  std::vector<DequantizedTensor> tensors;  ///< the weights that were stored as codes, in the order of computation
  std::int64_t weights = 0;                ///< number of all weights
  std::uint64_t bytes_before = 0;          ///< size of the weights in the source, scales included
  std::uint64_t bytes = 0;                 ///< size of the weights written
  std::vector<std::string> notes{};        ///< sentences about the source, for the user
};

/// Writes the checkpoint `output`, of kind model, as one file: each code of the quantized checkpoint `source` becomes
/// its value times its scale, multiplied in f32. Throws Error, and leaves no output, when the source is not quantized,
/// codes and scales do not match, a scale is bad, see dtype::bad_scale(), or a result is not finite (the tensor is
/// named).
DequantizeReport dequantize(const std::string& source, const std::string& output, const DequantizeOptions& options);

}  // namespace fp8::convert
