// Names and sizes; no file access.
#include "fp8/ckpt/tensor_meta.h"

#include <algorithm>
#include <array>

#include "fp8/base/checked.h"
#include "fp8/base/text.h"
#include "fp8/dtype/e2m1.h"

namespace fp8::ckpt {
namespace {

constexpr std::array<std::string_view, 3> kKinds = {"model", "quantized", "training"};

const Section* find_section(std::string_view name) {
  return std::find_if(kSections.begin(), kSections.end(), [&](const Section& s) { return name.starts_with(s.prefix); });
}

}  // namespace

std::string_view name_of(FileKind kind) { return kKinds.at(static_cast<std::size_t>(kind)); }

FileKind parse_kind(std::string_view name, const std::string& what) {
  const auto* it = std::find(kKinds.begin(), kKinds.end(), name);
  if (it == kKinds.end())
    throw Error(what + ": unknown kind \"" + terminal_safe(excerpt(name)) + "\" (model, quantized or training)");
  return static_cast<FileKind>(it - kKinds.begin());
}

bool is_known_section(std::string_view name) { return find_section(name) != kSections.end(); }

h5::Values values_of(std::string_view name) {
  const auto* section = find_section(name);
  return section == kSections.end() ? h5::Values::any : section->values;
}

std::vector<std::int64_t> TensorMeta::extents() const {
  std::vector<std::int64_t> extents = shape;
  if (!extents.empty()) extents.back() = checked_mul(extents.back(), dtype::packed(dtype), name);
  return extents;
}

std::uint64_t TensorMeta::bytes() const {
  const auto elements = static_cast<std::uint64_t>(checked_product(shape, name));
  return checked_mul(elements, std::uint64_t{dtype::size_of(dtype)}, name);
}

std::uint64_t TensorMeta::row_bytes() const { return rows() == 0 ? 0 : bytes() / static_cast<std::uint64_t>(rows()); }

}  // namespace fp8::ckpt
