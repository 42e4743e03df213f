/// The distance between the rows of f32 operands that the host multiplies fast.
#pragma once

#include <cstdint>

#include "fp8/base/round.h"

namespace fp8::gemm {

/// Row stride of an f32 matrix of `columns` columns, in elements: an odd number of cache lines, or 1 for one column.
/// With a stride of a power of two, rows share a few cache sets, and kernels that read along columns take twice as
/// long.
constexpr std::int64_t row_stride(std::int64_t columns) {
  constexpr std::int64_t kLine = 16;
  return columns == 1 ? 1 : (divide_up(columns, kLine) | 1) * kLine;
}

}  // namespace fp8::gemm
