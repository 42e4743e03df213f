/// Casts with one scale for each block of elements, on the host. Private to this crate.
#pragma once

#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// On a device, GEMMs with scales for blocks of 128 read rows of codes, and scales of rows, up to a multiple of this.
inline constexpr std::int64_t kDeviceRows = 8;

/// Memory for the scales of the blocks of a matrix [rows, cols] in the layout of Quantized::scale, f32, from `keep`, or
/// if that is null, from the arena.
View allocate_block_scales(const Context& ctx, std::int64_t rows, std::int64_t cols, Granularity granularity,
                           ContractionAxis contract, device::PooledMemory* keep);

/// Whether codes are multiplied by their inverse scales, if every product is exact.
bool folds(const Quantized& q, const CastOptions& options);

/// Casts x, a matrix with unit column stride, into q.codes and q.scale, sets q.inverse_scale and, with options.fold,
/// q.folded. Deterministic for any number of threads.
CastCounts cast_blocks(const View& x, Quantized& q, const CastOptions& options);

}  // namespace fp8::quant
