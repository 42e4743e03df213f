/// Converts a Hugging Face folder or any trainable checkpoint to one checkpoint: checks every tensor's name and shape,
/// and gives every linear a compute precision and a reason. Tensors are copied through a buffer of fixed size. Weights
/// are not fused or quantized here; with `pad` some get zero rows and columns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/dtype/dtype.h"
#include "fp8/model/checkpoint.h"
#include "fp8/model/initialize.h"
#include "fp8/model/parameters.h"
#include "fp8/model/record.h"

namespace fp8::convert {

/// Options of convert().
struct ConvertOptions {
  std::optional<dtype::DType>
      dtype{};  ///< format of the weights, f32 or bf16; by default as stored (f16 becomes f32, exactly)
  std::optional<model::PrecisionRules>
      precisions{};         ///< without a value: the precisions that a checkpoint records, or the defaults for a folder
  bool pad = false;         ///< pad the intermediate size, and the vocabulary of an FP8 LM head, to multiples of 16
  bool dequantize = false;  ///< multiply the FP8 codes of a folder by their scales; bf16 unless `dtype` says f32
  bool merge_lora = false;  ///< add the adapters of a LoRA checkpoint to its weights; the output has none
  bool merge = false;       ///< merge all shards, keep the optimizer state
  bool weights_only = false;       ///< merge all shards, write no optimizer state and no /train
  bool force = false;              ///< replace an output that exists
  bool dry_run = false;            ///< check everything, write nothing
  model::Origin origin{};          ///< origin for /provenance
  model::ProgressSink progress{};  ///< may be empty
};

/// A size of the configuration that was padded.
struct PaddedSize {
  std::string key;        ///< key in config.json
  std::int64_t from = 0;  ///< size in the source
  std::int64_t to = 0;    ///< size in the output, a multiple of 16
};

/// A weight whose codes were made anew because an adapter was merged into it.
struct Requantized {
  std::string name;  ///< Hugging Face name
  double distance =
      0;  ///< distance of the codes times scales from the merged weight: L2 norm of the difference over its norm
  std::optional<double> of_change{};  ///< the same difference over the norm of what the adapter adds, if that is not 0
};

/// The contents of the output, or under dry_run of the output that would be written.
struct ConvertReport {
  std::string kind;                        ///< kind of the output: model, training or quantized
  std::vector<model::LinearRow> linears;   ///< linears in the order of computation
  std::vector<PaddedSize> padded_sizes{};  ///< sizes that were padded
  std::vector<std::string> notes{};        ///< sentences about source and output, for the user
  std::vector<Requantized>
      requantized{};            ///< weights that were quantized again, in the order of computation; empty under dry_run
  std::int64_t tensors = 0;     ///< number of weights
  std::int64_t parameters = 0;  ///< number of elements of all weights
  std::uint64_t bytes = 0;      ///< size of all tensors written
  std::vector<std::string>
      invalid;  ///< `path: /name: reason` of each written tensor with values that ckpt::values_of() forbids
};

/// Converts `source` (a Hugging Face folder or a checkpoint) to the single file `output`. Throws Error, and leaves no
/// output, for missing, unexpected and mis-shaped tensors (named), for a quantized checkpoint, and for several shards
/// without `merge` or `weights_only`. The FP8 codes and scales of a folder are kept, in a checkpoint of kind quantized,
/// unless `dequantize`; `dtype`, `precisions` and `pad` need that. See hf/quantization.h for the folders that are read.
/// With `pad`, sizes that are not multiples of 16 are raised in the configuration, and the weights get rows and columns
/// of zeros: a padded intermediate size changes no sum; a padded vocabulary adds logits of 0, so the loss grows by ln(1
/// + rows added / sum of exp(logit)). Throws Error for a training checkpoint that would be padded with its moments.
/// With `merge` alone a training checkpoint stays one, optimizer state and /train included; else only its weights are
/// written. Deterministic.
ConvertReport convert(const std::string& source, const std::string& output, const ConvertOptions& options);

}  // namespace fp8::convert
