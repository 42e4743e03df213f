/// Casts of a matrix to NVFP4 as an operand of a GEMM. Private to this crate.
#pragma once

#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// quantize() with a cast to e2m1 of x, which has unit column stride. On a GPU as plan_fp4().
Quantized quantize_fp4(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract,
                       const CastOptions& options);

/// quantize_both() with casts to e2m1 on a GPU in a dry run: the memory of codes and scales, the reductions of amaxes,
/// and what a profile records, of casts as Transformer Engine has them: one pass over x for the amaxes, one for all
/// codes. A cast with Granularity::none gives x itself. Throws Error unless the context is dry, since there are no such
/// kernels here.
QuantizedPair plan_fp4(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options);

}  // namespace fp8::quant
