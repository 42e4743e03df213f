/// Casts matrices of a file to NVFP4, for scripts that compare its bits with those of other programs.
#pragma once

#include <string>

namespace fp8::probe {

/// Reads matrices from the safetensors file `in` and writes their casts to `out`, atomically.
///   in   for each NAME, as far as they are there; other tensors are ignored:
///        NAME/x [tokens, C] BF16 or F32, activations or a gradient; C is a multiple of 16
///        NAME/bits U8 [tokens, C], random bits for x; NAME/col_bits U8 [C, T], random bits for its transform, where T
///        is `tokens` rounded up to 16
///        NAME/w [N, K] BF16 or F32, a weight; K is a multiple of 16
///   out  of x: NAME/amax F32 [1]; NAME/row_codes U8 [tokens, C], one code in each byte, NAME/row_scales U8
///        [tokens, C / 16], E4M3 codes; with bits NAME/sr_codes; its Hadamard transform NAME/rht BF16 [C, T],
///        NAME/rht_amax, NAME/col_codes [C, T], NAME/col_scales [C, T / 16]; with col_bits NAME/sr_col_codes
///        of w: NAME/weight_amax F32 [1], NAME/weight_codes U8 [N, K], NAME/weight_scales U8 [ceil(N / 16), K / 16]
/// Deterministic for any number of threads. Throws Error when `in` has no such tensors or one of another shape or
/// format, or `out` exists without `force`.
void write_casts(const std::string& in, const std::string& out, bool force);

}  // namespace fp8::probe
