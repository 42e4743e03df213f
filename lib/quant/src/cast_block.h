/// Casts with one scale for each block of elements, on the host. Private to this crate.
#pragma once

#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// Memory for the scales of the blocks of a matrix [rows, cols] in the layout of Quantized::scale, f32, from `keep`, or
/// if that is null, from the arena.
View allocate_block_scales(const Context& ctx, std::int64_t rows, std::int64_t cols, Granularity granularity,
                           ContractionAxis contract, device::PooledMemory* keep);

/// Whether codes are multiplied by their inverse scales, if every product is exact.
bool folds(const Quantized& q, const CastOptions& options);

/// Casts x, a matrix with unit column stride, into q.codes and q.scale, sets q.inverse_scale and, with options.fold,
/// q.folded. Deterministic for any number of threads.
CastCounts cast_blocks(const View& x, Quantized& q, const CastOptions& options);

/// Casts x, a matrix with unit column stride, to codes with scales for blocks of 128 x 128: q.codes u8, contiguous, and
/// q.scale and q.inverse_scale, which have memory. Deterministic for any number of threads.
CastCounts cast_squares_to_bytes(const View& x, const Quantized& q, const CastOptions& options);

/// Multiplies the BF16 values of codes with scales for blocks of 128 x 128 by their inverse scales if every product is
/// zero or a normal BF16; q.folded tells whether it was done.
void fold_squares(Quantized& q);

}  // namespace fp8::quant
