/// What this crate's CUDA side does for the entrances, which have checked the arguments: matrices have unit column
/// stride, all memory lies on the device. Builds without CUDA have stand-ins that say so. Private to this crate.
#pragma once

#include "fp8/quant/quantize.h"

namespace fp8::quant::cuda {

/// See quant::amax.
void amax(const Context& ctx, const View& x, Granularity granularity, ContractionAxis contract, const View& out);
/// Which layouts of codes are wanted.
struct Layouts {
  bool columns = true;  ///< for the GEMM that contracts columns
  bool rows = true;     ///< for the one that contracts rows
};
/// See quant::quantize_both; a layout that is not wanted is left empty, and casts of granularity none too.
Both quantize(const Context& ctx, const View& x, const Casts& casts, Layouts layouts, const CastOptions& options);
/// See quant::scales_from_amax.
void scales_from_amax(const Context& ctx, const View& amax, dtype::DType format, bool power_of_2, const View& scales,
                      const View& inverse_scales);
/// See quant::cast_to_bytes.
void cast_to_bytes(const Context& ctx, const View& x, dtype::DType format, const float* scale, const View& codes,
                   CastCounts* counts);
/// Contiguous bytes laid out for the GEMM that contracts `contract`; memory from the arena unless they serve as they
/// are.
View repack(const Context& ctx, const View& codes, ContractionAxis contract);
/// Codes of a Quantized as the bf16 numbers they stand for, with the same strides; memory from the arena.
View upcast(const Context& ctx, const View& codes, dtype::DType format);

}  // namespace fp8::quant::cuda
