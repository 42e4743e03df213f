/// GEMMs of small tiles in the cache: the inner loops of attention. Register-blocked with the compiler's vector types,
/// so that the width does not depend on the vectorizer. The elements of a tile are words: f32, or pairs of bf16 that
/// the processor multiplies and sums in f32. Rows of the left operand are multiples of kTileRows, columns of the right
/// operand whole vectors. Private to this crate.
#pragma once

#include <cstdint>

#include "fp8/base/cpu.h"

namespace fp8::ops {

inline constexpr int kTileRows = 8;  ///< rows of a register block: enough independent sums to hide latency

/// Two bf16 that are adjacent along the contracted dimension, the first in the low half.
using Pair = std::uint32_t;

/// Left operand: element (i, p) is data[i * row + p * column], so that a transposed tile needs no copy.
template <class Word>
struct Left {
  const Word* data;     ///< first element
  std::int64_t row;     ///< words between rows
  std::int64_t column;  ///< words between columns
};

/// Right operand and result: rows of contiguous elements.
template <class T>
struct Rectangle {
  T* data;              ///< first element
  std::int64_t stride;  ///< elements between rows
};

/// Loops of tile.isa.cc, of one instruction set.
struct TileKernels {
  int lanes;  ///< floats of a vector
  /// c [m, n] = (accumulate ? c : 0) + a [m, k] b [k, n]; m % kTileRows == 0, n % lanes == 0. Sums over p are in order,
  /// from zero, and added to c once: same bits for every instruction set.
  void (*multiply)(std::int64_t m, std::int64_t n, std::int64_t k, Left<float> a, Rectangle<const float> b,
                   Rectangle<float> c, bool accumulate);
  /// Multiplies pairs: k pairs are contracted; both operands are pairs. Products are exact, sums f32; subnormal bf16
  /// are treated as zero. Null if the CPU does not multiply pairs.
  void (*multiply_pairs)(std::int64_t m, std::int64_t n, std::int64_t k, Left<Pair> a, Rectangle<const Pair> b,
                         Rectangle<float> c, bool accumulate);
  /// out [columns, rows] = in [rows, columns] transposed; rows % 16 == 0; strides in elements.
  void (*transpose)(std::int64_t rows, std::int64_t columns, Rectangle<const float> in, Rectangle<float> out);
  /// Transposes pairs, which are not split.
  void (*transpose_pairs)(std::int64_t rows, std::int64_t columns, Rectangle<const Pair> in, Rectangle<Pair> out);
};
FP8_ISA_TABLES(TileKernels, kTileKernels, tile_kernels)

}  // namespace fp8::ops
