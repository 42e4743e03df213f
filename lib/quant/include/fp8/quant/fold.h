/// Rowwise scaling with one FP8 copy of a weight. Codes with a scale per row serve the GEMM that contracts along the
/// rows (forward), and the one that contracts across them (dgrad) if the reciprocal scales are folded into its other
/// operand before that is cast.
///   w[n, k] ~= codes[n, k] / scale[n];  dx[m, k] = sum over n of (dy[m, n] / scale[n]) codes[n, k]
#pragma once

#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// x[m, n] * factors[n], multiplied in f32 and rounded to x's type, which is exact for factors that are powers of two
/// within its range. x [M, N] f32 or bf16 with unit column stride, factors f32 [N]; memory from the arena, category
/// "scratch".
View scale_columns(const Context& ctx, const View& x, const View& factors);

/// A scale of 1, f32 [1], from the arena.
View unit_scale(const Context& ctx);

/// The codes of `rows`, which has a scale per row and was not upcast, for the GEMM that contracts the first dimension,
/// with scale 1. On a device they are repacked; `emulate` as in CastOptions.
Quantized without_scales(const Context& ctx, const Quantized& rows, bool emulate);

/// 1 / scale of each scale, f32 [n] from the arena.
View reciprocals(const Context& ctx, const View& scales);

/// Casts x with a scale per row to bytes: codes u8 of x's shape, contiguous; scales f32 [rows].
/// For FP8 all-gather.
void cast_rows_to_bytes(const Context& ctx, const View& x, dtype::DType format, const CastOptions& options,
                        const View& codes, const View& scales);

/// Casts x with a given scale for each column, f32 [cols], to bytes: codes u8 of x's shape, contiguous. `counts` (may
/// be null) is added to. For FP8 all-gather.
void cast_columns_to_bytes(const Context& ctx, const View& x, dtype::DType format, const View& scales,
                           const View& codes, CastCounts* counts);

/// Casts x [rows, cols] to E4M3 with a scale for each block of 128 x 128 to bytes: codes u8 of x's shape, scales and
/// their reciprocals f32 [ceil(rows / 128), ceil(cols / 128)], all contiguous. For FP8 all-gather; not emulated on a
/// device. Of the options rule, known scales, split and fold are not used.
void cast_blocks_to_bytes(const Context& ctx, const View& x, const CastOptions& options, const View& codes,
                          const View& scales, const View& inverse_scales);

/// Multiplies codes of from_bytes() with scales for blocks of 128 x 128 by their inverse scales if every product is
/// zero or a normal BF16, as quantize() does with CastOptions::fold. On the host; nothing on a device.
void fold_blocks(const Context& ctx, Quantized& q);

}  // namespace fp8::quant
