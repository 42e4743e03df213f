/// Element types of safetensors headers: names, sizes, and the suite's format if supported. Private.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "fp8/dtype/dtype.h"

namespace fp8::hf {

/// One element type of a header.
struct StoredType {
  std::string_view name;               ///< F32, BF16, ...
  std::size_t bytes;                   ///< size of one element
  std::optional<dtype::DType> format;  ///< the suite's format
};

/// All types that can be read.
inline constexpr std::array<StoredType, 16> kStoredTypes = {{
    {"F64", 8, dtype::DType::f64},
    {"F32", 4, dtype::DType::f32},
    {"F16", 2, dtype::DType::f16},
    {"BF16", 2, dtype::DType::bf16},
    {"F8_E4M3", 1, dtype::DType::e4m3},
    {"F8_E5M2", 1, dtype::DType::e5m2},
    {"F8_E8M0", 1, dtype::DType::e8m0},
    {"U64", 8, dtype::DType::u64},
    {"U32", 4, dtype::DType::u32},
    {"U16", 2, dtype::DType::u16},
    {"U8", 1, dtype::DType::u8},
    {"I64", 8, dtype::DType::i64},
    {"I32", 4, dtype::DType::i32},
    {"I16", 2, std::nullopt},
    {"I8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},
}};

/// The type called `name`, or null.
inline const StoredType* find_stored_type(std::string_view name) {
  for (const StoredType& t : kStoredTypes) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

}  // namespace fp8::hf
