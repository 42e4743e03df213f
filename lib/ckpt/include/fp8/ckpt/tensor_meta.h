/// Metadata of a tensor, and the names of a checkpoint's sections. A tensor is any dataset except the four documents
/// (config, train, provenance, tokenizer at the root) and the texts in /huggingface; the first part of its name is its
/// section.
#pragma once

#include <array>

#include "fp8/h5/types.h"

namespace fp8::ckpt {

using dtype::DType;

/// Kind of a checkpoint.
enum class FileKind : std::uint8_t {
  model,      ///< trainable weights
  quantized,  ///< FP8 codes and scales; cannot be trained
  training,   ///< weights, optimizer state and position of a run
};

/// "model", "quantized", "training".
std::string_view name_of(FileKind kind);
/// Inverse of name_of(Kind); throws Error `what: unknown kind ...`.
FileKind parse_kind(std::string_view name, const std::string& what);

/// Version of the format that this library reads and writes.
inline constexpr std::int64_t kVersion = 2;

/// Prefixes of tensor names.
inline constexpr std::string_view kWeights = "weights/";
inline constexpr std::string_view kScales = "scales/";        ///< factors of the codes
inline constexpr std::string_view kGlobals = "globals/";      ///< amaxes of tensors of FP4 codes
inline constexpr std::string_view kMomentM = "optimizer/m/";  ///< first moments
inline constexpr std::string_view kMomentV = "optimizer/v/";  ///< second moments
inline constexpr std::string_view kFp8 = "fp8/";              ///< state of the delayed recipe

/// Prefix of the texts of files of a Hugging Face folder, followed by the file's name.
inline constexpr std::string_view kHuggingFace = "huggingface/";

/// A section that this version defines.
struct Section {
  std::string_view prefix;  ///< begin of the names of its tensors
  h5::Values values;        ///< the values that a valid checkpoint may hold there
  bool training;            ///< state of a run, which only a training checkpoint keeps
};

/// Every section. A new one is a row here.
inline constexpr std::array<Section, 6> kSections{{{kWeights, h5::Values::finite, false},
                                                   {kScales, h5::Values::finite_unsigned, false},
                                                   {kGlobals, h5::Values::finite_unsigned, false},
                                                   {kMomentM, h5::Values::finite, true},
                                                   {kMomentV, h5::Values::finite_unsigned, true},
                                                   {kFp8, h5::Values::finite_unsigned, true}}};

/// Whether a tensor's name is in a section that this version defines.
bool is_known_section(std::string_view name);

/// The values that a valid checkpoint may hold under this name: weights, scales, amaxes and optimizer state are finite,
/// scales, amaxes and second moments >= 0; sections that this version does not define may hold any.
h5::Values values_of(std::string_view name);

/// One tensor of a checkpoint.
struct TensorMeta {
  std::string name;                 ///< full name, such as `weights/model.norm.weight`
  DType dtype = DType::f32;         ///< stored dtype
  std::vector<std::int64_t> shape;  ///< global extents as stored, at most four; empty for a scalar
  std::string precision;            ///< compute precision of a weight: "fp8" or "bf16"; may be empty
  std::string reason;               ///< why it has that precision; may be empty
  h5::Attributes attributes;        ///< all others, unchanged

  /// Extents in elements: those of `shape`, but for e2m1, of which a byte of the last dimension has two. Throws Error
  /// on overflow.
  std::vector<std::int64_t> extents() const;
  /// Extent of the first dimension; 1 for a scalar.
  std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  /// Bytes of one row; 0 if there are no rows. Throws Error on overflow.
  std::uint64_t row_bytes() const;
  /// Bytes of the whole tensor. Throws Error on overflow.
  std::uint64_t bytes() const;
  /// Equal in every field.
  bool operator==(const TensorMeta&) const = default;
};

}  // namespace fp8::ckpt
