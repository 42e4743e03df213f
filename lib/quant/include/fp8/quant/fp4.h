/// Casts to NVFP4: E2M1 elements, an E4M3 scale for each block of 16 or 16 x 16 elements, and one f32 scale for the
/// tensor, which follows from its amax. On the host.
///   S = 2688 / amax; d = E4M3(b S / 6), b the amax of the block; q = E2M1(x S / d); x ~= q d / S
/// 2688 = 6 x 448, so that the largest block scale is the largest E4M3 value.
/// Source: fp8-recipes(7); Transformer Engine core_nvfp4.cuh, torchao nvfp4_reference.py, whose bits these are.
#pragma once

#include <array>
#include <cstdint>

#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// Elements along one dimension that share a block scale, and tokens of one Hadamard transform.
inline constexpr std::int64_t kFp4Block = 16;

/// A cast to NVFP4.
struct Fp4Cast {
  ContractionAxis contract = ContractionAxis::last;  ///< the dimension along which the elements of a block lie
  bool square = false;                               ///< blocks of 16 x 16, the same for both contraction axes
  float amax = 0;                                    ///< largest magnitude of the tensor; NaN makes every scale NaN
  View random{};  ///< u8 of the shape of the matrix: rounds stochastically by these bits; empty: to nearest
};

/// Factor of the products of two NVFP4 tensors with these amaxes, 1 / (S_a S_b) = amax_a amax_b / 2688^2, rounded as
/// Transformer Engine does. 0 or infinite if the product of the amaxes leaves the range of f32.
float fp4_alpha(float amax_a, float amax_b);

/// Casts x [rows, cols] (f32 or bf16, unit column stride) to NVFP4.
///   codes   u8 [rows, cols], contiguous, one code in each byte: fp8/dtype/e2m1.h; a zero keeps its sign
///   scales  u8, contiguous E4M3 codes: [rows, cols / 16]; contracting the first dimension [ceil(rows / 16), cols];
///           with square blocks [ceil(rows / 16), cols / 16]
/// cols is a multiple of 16, except for blocks along the first dimension. Deterministic for any number of threads.
/// Throws Error for shapes that do not fit.
void cast_to_fp4(const Context& ctx, const View& x, const Fp4Cast& cast, const View& codes, const View& scales);

/// What cast_to_fp4() multiplies elements by before it rounds them, one factor for each block.
///   out  f32, contiguous, of the shape of its scales
void fp4_multipliers(const Context& ctx, const View& x, const Fp4Cast& cast, const View& out);

/// Packed codes of a file as the operand of a GEMM that contracts `contract`; memory from the arena.
///   codes   [rows, cols / 2], a byte each, contiguous: the even element in the low four bits
///   scales  [ceil(rows / 16), cols / 16], contiguous E4M3 codes of blocks of 16 x 16
///   amax    f32 [1], to which the result refers
Quantized from_packed(const Context& ctx, const View& codes, const View& scales, const View& amax,
                      ContractionAxis contract);

/// The shape of the block scales of a matrix of rows x cols.
std::array<std::int64_t, 2> fp4_scales(std::int64_t rows, std::int64_t cols, ContractionAxis contract, bool square);

/// The Hadamard transform along the first dimension, in blocks of 16 rows: each column v of a block becomes
/// v diag(s) H / 4, with Sylvester's H of 16 x 16 and 16 fixed signs s, so that the transforms of both operands cancel
/// in their product. Rows that the last block lacks are zero.
///   x    [rows, cols]                    f32 or bf16, unit column stride
///   out  [rows rounded up to 16, cols]   bf16, contiguous; not the memory of x
/// Sums are f64, rounded to f32, then to bf16.
void hadamard_transform(const Context& ctx, const View& x, const View& out);

}  // namespace fp8::quant
