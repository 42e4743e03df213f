/// Contents of the suite's HDF5 files: datasets with a dtype, a shape and attributes, and the limits shared by reader
/// and writer. No handle and no type of the HDF5 library appears in a header of this crate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fp8/dtype/dtype.h"

namespace fp8::h5 {

using dtype::DType;

/// Value of an attribute: text (fixed length, at most kMaxAttributeBytes), integer, real, or a short vector of
/// integers.
using AttributeValue = std::variant<std::string, std::int64_t, double, std::vector<std::int64_t>>;
/// Attributes of one object by name, sorted.
using Attributes = std::map<std::string, AttributeValue, std::less<>>;

/// Size of the user block at the start of a file with a whole-file digest.
inline constexpr std::size_t kUserBlockBytes = 512;
/// First word of a checkpoint's user block.
inline constexpr std::string_view kCheckpointMagic = "fp8-checkpoint";
/// First word of a token file's user block.
inline constexpr std::string_view kTokensMagic = "fp8-tokens";

/// Largest number of dimensions.
inline constexpr std::size_t kMaxRank = 4;
/// Deepest nesting of groups.
inline constexpr std::size_t kMaxDepth = 16;
/// Most groups and datasets in a file.
inline constexpr std::size_t kMaxObjects = std::size_t{1} << 20;
/// Most attributes of one object.
inline constexpr std::size_t kMaxAttributes = 64;
/// Largest attribute, in bytes.
inline constexpr std::size_t kMaxAttributeBytes = std::size_t{32} << 10;
/// Longest name of a group, dataset or attribute, in bytes. Names are printable ASCII without spaces, `.`, `..`
/// excepted.
inline constexpr std::size_t kMaxNameBytes = 255;

/// The values that a dataset may hold, which are checked in addition to its digest.
enum class Values : std::uint8_t {
  any,              ///< all
  finite,           ///< no infinity, no NaN
  finite_unsigned,  ///< finite and without a sign: >= 0
};

/// One dataset of a file.
struct Entry {
  std::string name;                 ///< full path without the leading slash, such as `weights/model.norm.weight`
  DType dtype = DType::u8;          ///< value of attribute `dtype` if present, else derived from the storage type
  std::vector<std::int64_t> shape;  ///< extents, outermost first; empty for a scalar
  std::uint64_t bytes = 0;          ///< product of shape times the element's size
  std::uint64_t offset = 0;         ///< offset of its first byte in the file (user block included); 0 when bytes is 0
  Attributes attributes;            ///< all attributes, `dtype` and `digest` included

  /// Extent of the first dimension; 1 for a scalar.
  std::int64_t rows() const { return shape.empty() ? 1 : shape.front(); }
  /// Bytes of one row; 0 if there are no rows.
  std::uint64_t row_bytes() const { return rows() == 0 ? 0 : bytes / static_cast<std::uint64_t>(rows()); }
};

/// The text attribute `name`; empty if it is missing or not text.
std::string text_or_empty(const Attributes& attributes, std::string_view name);

/// Version of the library in use: "HDF5 1.10.8".
std::string library_version();

}  // namespace fp8::h5
