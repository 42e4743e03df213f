// Names and sizes of the number formats: one table.
#include "fp8/dtype/dtype.h"

#include <array>
#include <string>

#include "fp8/base/error.h"

namespace fp8::dtype {
namespace {

struct Row {
  DType type;
  std::size_t size;
  std::string_view name;
};

// Rows in the order of DType.
constexpr std::array<Row, 14> kRows{{
    {DType::f32, 4, "float32"},
    {DType::bf16, 2, "bfloat16"},
    {DType::f16, 2, "float16"},
    {DType::f64, 8, "float64"},
    {DType::e4m3, 1, "float8_e4m3fn"},
    {DType::e5m2, 1, "float8_e5m2"},
    {DType::e2m1, 1, "float4_e2m1fn_x2"},
    {DType::e8m0, 1, "float8_e8m0fnu"},
    {DType::u8, 1, "uint8"},
    {DType::u16, 2, "uint16"},
    {DType::u32, 4, "uint32"},
    {DType::u64, 8, "uint64"},
    {DType::i32, 4, "int32"},
    {DType::i64, 8, "int64"},
}};

constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<std::size_t>(kRows[i].type) != i) return false;
  return true;
}
static_assert(rows_are_in_order());

}  // namespace

std::size_t size_of(DType t) { return kRows.at(static_cast<std::size_t>(t)).size; }

std::string_view name_of(DType t) { return kRows.at(static_cast<std::size_t>(t)).name; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.type;
  return std::nullopt;
}

float max_of(DType t) {
  if (t == DType::e4m3) return 448.0f;
  if (t == DType::e5m2) return 57344.0f;
  throw Error(std::string(name_of(t)) + ": not an FP8 format");
}

}  // namespace fp8::dtype
