/// What happens to f32 sums on their way into C: inverse scales, bias, accumulation, rounding. Here on the host; on a
/// device finish.cuh does the same.
#pragma once

#include <cstdint>

#include "fp8/gemm/gemm.h"

namespace fp8::gemm {

/// Everything but the sums. Pointers lie where the sums do; null where there is none.
struct Epilogue {
  const float* scale_a = nullptr;  ///< [rows] when `scale_a_rows`, else [1]
  bool scale_a_rows = false;       ///< one inverse scale for each row
  const float* scale_b = nullptr;  ///< [columns] when `scale_b_columns`, else [1]
  bool scale_b_columns = false;    ///< one inverse scale for each column
  tensor::View bias;               ///< empty or [columns], f32 or bf16
  bool accumulate = false;         ///< add to C instead of overwriting; C f32
  bool product_of_scales = false;  ///< multiply sums by scale_a * scale_b, rounded, instead of one after the other

  /// The same for `columns` columns of C, its first element being [row, column].
  Epilogue shifted(std::int64_t row, std::int64_t column, std::int64_t columns) const;
};

/// Of one call.
Epilogue epilogue_of(const Operand& a, const Operand& b, const MatmulOptions& options);

/// c = sums * scale_a * scale_b + bias (+ c), each operation rounded to f32 in this order, then rounded to c's format.
///   sums  [rows, columns]  f32, rows `stride` elements apart, overwritten
///   c     [rows, columns]  f32 or bf16, unit column stride
/// Deterministic, whatever the number of threads.
void finish(float* sums, std::int64_t stride, const Epilogue& epilogue, const tensor::View& c);

}  // namespace fp8::gemm
