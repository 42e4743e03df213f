/// The CUDA operations of this crate. Callers have checked the arguments: matrices have unit column stride, and all
/// memory is on the device. Defined in cuda.cu; in builds without CUDA they throw Error. Private to this crate.
#pragma once

#include "fp8/quant/quantize.h"

namespace fp8::quant::cuda {

/// See quant::amax.
void amax(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out);
/// See quant::quantize_both; a result with Granularity::none stays empty.
QuantizedPair quantize(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options);
/// See quant::scales_from_amax.
void scales_from_amax(const Context& ctx, const View& amax, dtype::DType format, bool power_of_2, const View& scales,
                      const View& inverse_scales);
/// See quant::cast_to_bytes.
void cast_to_bytes(const Context& ctx, const View& x, dtype::DType format, const float* scale, const View& codes,
                   CastCounts* counts);
/// Contiguous FP8 codes in the layout for the GEMM that contracts `contract`: `codes` itself if it has that layout,
/// else a copy in the arena.
View repack(const Context& ctx, const View& codes, ContractionAxis contract);
/// The BF16 values of FP8 codes, with the same strides; memory from the arena.
View upcast(const Context& ctx, const View& codes, dtype::DType format);

}  // namespace fp8::quant::cuda
