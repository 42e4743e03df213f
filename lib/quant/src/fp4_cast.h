/// The cast of a matrix to NVFP4 as an operand of a GEMM. Private to this crate.
#pragma once

#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// quantize() with a cast to e2m1 of x, which has unit column stride.
Quantized quantize_fp4(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract,
                       const CastOptions& options);

}  // namespace fp8::quant
