/// Epilogue of a GEMM: from f32 sums to C by inverse scales, bias, accumulation and rounding. Here on the host;
/// epilogue.cuh is the same on a device. Private to this crate.
#pragma once

#include <cstdint>

#include "fp8/base/cpu.h"
#include "fp8/gemm/gemm.h"

namespace fp8::gemm {

/// Arguments besides the sums, on the same device; null if absent.
struct Epilogue {
  const float* scale_a = nullptr;  ///< [rows] when `scale_a_rows`, else [1]
  bool scale_a_rows = false;       ///< one inverse scale for each row
  const float* scale_b = nullptr;  ///< [columns] when `scale_b_columns`, else [1]
  bool scale_b_columns = false;    ///< one inverse scale for each column
  tensor::View bias;               ///< empty or [columns], f32 or bf16
  bool accumulate = false;         ///< add to C instead of overwriting; C f32
  bool product_of_scales = false;  ///< multiply sums by scale_a * scale_b, rounded, instead of one after the other
  float product_factor = 1;        ///< multiplies scale_a * scale_b, which is then rounded again

  /// The epilogue of the block of `columns` columns of C that begins at [row, column].
  Epilogue shifted(std::int64_t row, std::int64_t column, std::int64_t columns) const;
};

/// The epilogue of one call.
Epilogue epilogue_of(const Operand& a, const Operand& b, const MatmulOptions& options);

/// c = sums * scale_a * scale_b + bias (+ c), each operation rounded to f32 in this order, then rounded to c's format.
///   sums  [rows, columns]  f32, rows `stride` elements apart, overwritten
///   c     [rows, columns]  f32 or bf16, unit column stride
/// Deterministic for any number of threads.
void finish(float* sums, std::int64_t stride, const Epilogue& epilogue, const tensor::View& c);

/// Loops of epilogue.isa.cc for one instruction set.
struct EpilogueKernels {
  /// finish() of row `row`, whose sums are v [columns].
  void (*finish_row)(float* v, std::int64_t row, const Epilogue& epilogue, const tensor::View& c);
};
FP8_ISA_TABLES(EpilogueKernels, kEpilogueKernels, epilogue_kernels)

}  // namespace fp8::gemm
