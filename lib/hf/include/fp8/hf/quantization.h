/// FP8 and FP4 weights of a model folder: its `quantization_config`, and which of its tensors are codes, their scales,
/// or neither. A code times its scale is the weight. Both the configuration and the tensors are untrusted and must
/// agree. Source: transformers 5.23, finegrained_fp8.py; vLLM 0.12, fp8.py and compressed_tensors.py;
/// compressed-tensors 0.12, quant_config.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8/hf/folder.h"

namespace fp8::hf {

/// A weight that is stored as E4M3 or packed E2M1 codes. Pointers are valid as long as the folder.
struct Codes {
  const Folder::Entry* weight = nullptr;  ///< codes [out, in]; of E2M1 u8 [out, in / 2]
  const Folder::Entry* scales = nullptr;  ///< f32, bf16 or f16; of E2M1 codes E4M3
  /// Extents of the scales: {1}, {out}, {ceil(out / 128), ceil(in / 128)}, or of E2M1 codes {out, in / 16}.
  std::vector<std::int64_t> scales_shape{};
  const Folder::Entry* global = nullptr;  ///< E2M1: the scale of the tensor, one f32; its inverse multiplies the codes
};

/// A weight of a folder.
struct FolderWeight {
  std::string name;                      ///< name of the weight in the model
  std::vector<std::int64_t> shape{};     ///< extents in elements
  std::optional<dtype::DType> format{};  ///< format, if supported; e2m1 for packed codes
  const Folder::Entry* entry = nullptr;  ///< tensor that holds it
};

/// The tensors of a folder.
struct FolderTensors {
  std::vector<FolderWeight> weights;                ///< all tensors but scales, sorted by name
  std::map<std::string, Codes, std::less<>> codes;  ///< the weights stored as codes, by name
  std::size_t activation_scales = 0;                ///< number of scales of activations, which are ignored
};

/// Divides the tensors of a folder by its `quantization_config`; without one, all are weights. Throws Error `path:
/// NAME: reason` for codes without scales, scales without codes, scales of another shape or format, and for a linear of
/// a layer that is stored as codes although the configuration excludes it, or is not although it does not; Error `path:
/// reason` if there are no codes at all.
FolderTensors tensors_of(const Folder& folder);

/// The scales of a weight of E4M3 codes in row-major order. Throws Error naming one that dtype::bad_scale() does.
std::vector<float> read_scales(const Folder& folder, const Codes& codes);

/// The scales of E2M1 codes as stored, [out, in / 16], and the amax of the tensor, to whose dtype::fp4_scale() its
/// scale belongs: of those with the same scale the one that is a bf16 value, if there is one. Throws Error unless the
/// scale of the tensor is finite and positive, and 2688 over it finite.
std::pair<std::vector<std::byte>, float> read_fp4_scales(const Folder& folder, const Codes& codes);

}  // namespace fp8::hf
