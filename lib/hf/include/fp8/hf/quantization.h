/// FP8 weights of a model folder: its `quantization_config`, and which of its tensors are codes, their scales, or
/// neither. A code times its scale is the weight. Both the configuration and the tensors are untrusted and must agree.
/// Source: transformers 5.23, finegrained_fp8.py; vLLM 0.12, fp8.py and compressed_tensors.py; compressed-tensors 0.12,
/// quant_config.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/hf/folder.h"

namespace fp8::hf {

/// A weight that is stored as E4M3 codes. Pointers are valid as long as the folder.
struct Codes {
  const Folder::Entry* weight = nullptr;  ///< codes [out, in]
  const Folder::Entry* scales = nullptr;  ///< f32, bf16 or f16
  /// Extents of the scales: {1}, {out}, or {ceil(out / 128), ceil(in / 128)}.
  std::vector<std::int64_t> scales_shape{};
};

/// The tensors of a folder.
struct FolderTensors {
  std::vector<const Folder::Entry*> weights;        ///< all tensors but scales, sorted by name
  std::map<std::string, Codes, std::less<>> codes;  ///< the weights stored as codes, by name
  std::size_t activation_scales = 0;                ///< number of scales of activations, which are ignored
};

/// Divides the tensors of a folder by its `quantization_config`; without one, all are weights. Throws Error `path:
/// NAME: reason` for codes without scales, scales without codes, scales of another shape or format, and for a linear of
/// a layer that is stored as codes although the configuration excludes it, or is not although it does not; Error `path:
/// reason` if there are no codes at all.
FolderTensors tensors_of(const Folder& folder);

/// The scales of a weight in row-major order. Throws Error naming one that dtype::bad_scale() does.
std::vector<float> read_scales(const Folder& folder, const Codes& codes);

}  // namespace fp8::hf
