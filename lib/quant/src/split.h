/// Casts of a part of a matrix that ranks share. Private to this crate.
#pragma once

#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// Whether amaxes of a cast cover elements of several ranks.
bool covers_ranks(const Cast& cast, ContractionAxis contract, const Split& split);

/// Throws Error if blocks are on several ranks and cannot be, or if the part begins inside of a block and they are not.
void require_split(const Context& ctx, const Cast& cast, ContractionAxis contract, const CastOptions& options);

/// The options with the amax of the whole matrix, if one of the casts needs it, as CastOptions::amax.
CastOptions with_whole_amax(const Context& ctx, const View& x, const CastPair& casts, CastOptions options);

/// The split of the transposed matrix.
inline Split flipped(Split split) {
  split.axis = 1 - split.axis;
  return split;
}

/// Reduces amaxes f32 [n] over the ranks; nothing happens if n is 0.
void reduce(const Context& ctx, const Split& split, const View& amaxes);

/// Casts x, which has parts of blocks of a larger matrix, into q.codes, folded, on the host; scales are of all blocks
/// of the whole. x has unit column stride; options have passed require_split(). Deterministic for any number of
/// threads. Scales are in memory of `keep`, or if that is null, of the arena.
CastCounts cast_straddling(const Context& ctx, const View& x, Quantized& q, const CastOptions& options,
                           device::PooledMemory* keep);

}  // namespace fp8::quant
