/// FP8 GEMMs with the accumulation of the tensor cores of an H100 (blocks of 32 products) or an RTX 4060 (blocks of
/// 16): the loops of tensor_core.isa.cc over packed operands. The rule for one sum along K with the accumulator c:
///  - The exponent E of a block is the largest of the exponents of its nonzero products and of c. The exponent of a
///    product is the sum of those of its operands, each floor(log2|x|), at least that of the format's smallest normal.
///  - Each product and c are truncated toward zero to multiples of 2^(E-13), and added exactly.
///  - The sum, truncated toward zero to 14 significant bits, is the next c. The first c is +0.
/// With slow accumulation, every 128 products are a separate chain, and the results of chains are added in f32, rounded
/// to nearest; with scales for blocks, each result is multiplied by its scale before. NaN and infinities, other scales,
/// tiles and threads are in tensor_core.cc. Private to this crate. Source: F. A. Khattak, M. Mikaitis, "Accurate Models
/// of NVIDIA Tensor Cores", ACM TACO 23(3), 2026, arXiv:2512.07004.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "fp8/base/cpu.h"

namespace fp8::gemm {

/// Products of one chain with slow accumulation.
inline constexpr std::int64_t kSlowChain = 128;
/// Maximum rows of A per call of TensorCoreLoops::sums.
inline constexpr std::int64_t kMostRows = 64;
/// Rows of packed A are a multiple of this.
inline constexpr std::int64_t kRowsAtOnce = 4;

/// FP8 values stored as bf16. `outer` is the dimension that is not contracted: rows of A, columns of B.
struct CodeMatrix {
  const std::uint16_t* values;  ///< bits of bf16, from the first element on
  std::int64_t outer, depth;    ///< extents; depth is K
  std::int64_t outer_stride;    ///< elements; one of the strides is 1
  std::int64_t depth_stride;    ///< elements
  int least;                    ///< exponent of the format's smallest normal: -6 (E4M3), -14 (E5M2)
};

/// Inverse scales of chains, for operands with scales for blocks of kSlowChain; null without.
struct ChainScales {
  const float* a = nullptr;   ///< [chains, rows], for the rows of A
  std::int64_t a_stride = 0;  ///< elements between chains
  const float* b = nullptr;   ///< [chains, panel], for the columns of B
  std::int64_t b_stride = 0;  ///< elements between chains
};

/// Packed operands of a call of TensorCoreLoops::sums.
struct PackedBlocks {
  const std::byte* a;     ///< [blocks, a_stride], from the first row on
  std::int64_t a_stride;  ///< packed blocks between blocks of K
  std::int64_t rows;      ///< rows of A, a multiple of kRowsAtOnce, at most kMostRows
  const std::byte* b;     ///< [blocks]
  std::int64_t blocks;    ///< blocks of K
};

/// Loops for one length of a block. Packed operands are whole blocks, padded with positive zeros. NaN and infinities
/// are packed as zeros.
struct TensorCoreLoops {
  std::int64_t block;   ///< products of a block: 32 or 16
  std::size_t a_bytes;  ///< size of a packed block of one row of A
  std::size_t b_bytes;  ///< size of a packed block of a panel of B
  /// Packs rows [begin, begin + rows) of A, blocks [first, first + blocks) of K, into to [blocks, stride] from row 0
  /// on. Returns whether a value is NaN or infinite.
  bool (*pack_a)(const CodeMatrix& a, std::int64_t begin, std::int64_t rows, std::int64_t first, std::int64_t blocks,
                 std::byte* to, std::int64_t stride);
  /// Packs the panel of B that begins with column `begin`, blocks [first, first + blocks) of K, into to [blocks].
  /// Returns whether a value is NaN or infinite.
  bool (*pack_b)(const CodeMatrix& b, std::int64_t begin, std::int64_t first, std::int64_t blocks, std::byte* to);
  /// Continues the sums c [rows, panel], rows `stride` floats apart, by the packed blocks. Fast: c is the accumulator.
  /// Slow: c is the sum of the previous chains, and the first block begins a chain. Scales, only if slow: the result of
  /// a chain is multiplied by the product of its two scales, rounded to f32, before it is added.
  void (*sums)(const PackedBlocks& packed, bool fast, const ChainScales& scales, float* c, std::int64_t stride);
};

/// Loops of one instruction set.
struct TensorCoreKernels {
  std::int64_t panel;                    ///< columns of B that are packed together
  std::array<TensorCoreLoops, 2> loops;  ///< blocks of 32, of 16
};
FP8_ISA_TABLES(TensorCoreKernels, kTensorCoreKernels, tensor_core_kernels)

}  // namespace fp8::gemm
