/// The passes of epilogue.isa.cc over one row. Private to this crate.
#pragma once

#include "epilogue.h"
#include "fp8/base/cpu.h"

namespace fp8::gemm {

/// Passes of one instruction set.
struct EpilogueKernels {
  /// finish() of row `row`, whose sums are v [columns].
  void (*finish_row)(float* v, std::int64_t row, const Epilogue& epilogue, const tensor::View& c);
};
FP8_ISA_TABLES(EpilogueKernels, kEpilogueKernels, epilogue_kernels)

}  // namespace fp8::gemm
