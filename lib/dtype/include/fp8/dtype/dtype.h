/// The number formats of tensors and files: names and sizes. Arithmetic on single elements is in element.h, loops over
/// arrays in convert.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fp8::dtype {

/// Format of one element. The numeric values are internal; files contain the names.
enum class DType : std::uint8_t { f32, bf16, f16, f64, e4m3, e5m2, e2m1, e8m0, u8, u16, u32, u64, i32, i64 };

/// Whether t is a format of FP8 codes: e4m3 or e5m2.
constexpr bool is_fp8(DType t) { return t == DType::e4m3 || t == DType::e5m2; }

/// Whether t is the format of FP4 codes, e2m1. Files have two codes in each byte.
constexpr bool is_fp4(DType t) { return t == DType::e2m1; }
/// Whether t is a format of codes: FP8 or FP4.
constexpr bool is_coded(DType t) { return is_fp8(t) || is_fp4(t); }

/// Bytes of one element; of e2m1, of two.
std::size_t size_of(DType t);

/// Name in files and messages: float32, bfloat16, float16, float64, float8_e4m3fn, float8_e5m2, float4_e2m1fn_x2,
/// float8_e8m0fnu, uint8, ...
std::string_view name_of(DType t);

/// Inverse of name_of; empty for an unknown name.
std::optional<DType> parse_dtype(std::string_view name);

/// Largest finite value of an FP8 format: 448 (E4M3FN), 57344 (E5M2). Throws Error for another format.
float max_of(DType t);

}  // namespace fp8::dtype
