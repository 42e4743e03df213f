/// Casts of an input of a linear for both of its GEMMs at once, of which one runs much later: the codes for that one
/// are kept in place of the input.
#pragma once

#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// Whether quantize_keeping() has a cast of x for the GEMM that contracts the first dimension, and its codes and scales
/// take less memory than x, of which only shape and type are read. It has casts to FP8, on a device without emulation.
/// There codes take one byte an element, and on the host two.
bool saves_memory(const Context& ctx, const View& x, const Cast& cast, bool emulate);

/// quantize_both() of x, whose rows have unit stride, with the codes and scales of the matrix that contracts the first
/// dimension in memory of `keep`, category "activation codes". Known scales are referred to by the result all the same.
/// Both casts are counted, as if each were alone. Throws Error for other casts than saves_memory() names.
QuantizedPair quantize_keeping(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options,
                               device::PooledMemory& keep);

}  // namespace fp8::quant
