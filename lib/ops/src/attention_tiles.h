/// Tiles of q, k, v as operands of GEMMs, and the mask; only for attention_forward.isa.cc and
/// attention_backward.isa.cc. Scores are stored transposed, [keys, queries]: the softmax is then vectorized over
/// queries, and only the queries of a block are transposed, once, instead of all keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "attention_common.h"
#include "tile.h"

namespace fp8::ops {

inline constexpr float kMasked = -std::numeric_limits<float>::infinity();  ///< score of a masked pair
#ifdef __AVX512BF16__
inline constexpr bool kMultipliesPairs = true;  ///< whether the instruction set multiplies pairs of bf16
#else
inline constexpr bool kMultipliesPairs = false;  ///< whether the instruction set multiplies pairs of bf16
#endif

/// Rows of one head of a [B, T, heads, D] view.
template <class T>
struct Head {
  T* data;              ///< position 0
  std::int64_t stride;  ///< elements between positions

  Head(const View& v, std::int64_t b, std::int64_t h)
      : data(static_cast<T*>(v.data) + b * v.stride[0] + h * v.stride[2]), stride(v.stride[1]) {}
};

/// The causal and document mask of one tile of queries.
class Mask {
 public:
  /// The mask of query tile `block` of sequence b.
  Mask(const AttentionShape& shape, const Documents& documents, std::int64_t b, std::int64_t block) {
    const std::int32_t* start =
        documents.start.rank == 0 ? nullptr : documents.start.as<std::int32_t>() + b * shape.positions;
    for (std::int64_t i = 0; i < kBlock; ++i) {
      const std::int64_t position = block * kBlock + i;
      const bool known = start != nullptr && position < shape.positions;
      last_[i] = static_cast<std::int32_t>(position);
      first_[i] = known ? std::clamp(start[position], 0, last_[i]) : 0;
    }
    // Rows past the end attend to key 0; they are not written and do not extend the range of keys.
    const std::int64_t rows = shape.rows(block);
    lowest_ = *std::min_element(first_, first_ + rows);
    highest_ = *std::max_element(first_, first_ + rows);
  }
  /// First tile of keys that is not masked for all queries.
  std::int64_t first_block() const { return lowest_ / kBlock; }
  /// Masks the transposed scores of key tile `block`.
  void apply(std::int64_t block, float* scores) const {
    const auto key0 = static_cast<std::int32_t>(block * kBlock);
    if (key0 >= highest_ && key0 + kBlock - 1 <= last_[0]) return;
    for (std::int32_t j = 0; j < kBlock; ++j) {
      const std::int32_t key = key0 + j;
      float* row = scores + j * kBlock;
#pragma omp simd
      for (std::int64_t i = 0; i < kBlock; ++i) row[i] = (key >= first_[i]) & (key <= last_[i]) ? row[i] : kMasked;
    }
  }

 private:
  std::int32_t first_[kBlock], last_[kBlock], lowest_, highest_;
};

/// Tiles of activations T as operands, in words of one f32 value. Tiles are [kBlock, width] words.
template <class T>
struct Tiles {
  using Word = float;  ///< element of a tile
  /// Words of a row of `values` values.
  static constexpr std::int64_t words(std::int64_t values) { return values; }
  /// Writes the values of a row; zero past `dim`.
  static void read_row(const AttentionShape& shape, const T* from, Word* to) {
#pragma omp simd
    for (std::int64_t d = 0; d < shape.dim; ++d) to[d] = dtype::to_float(from[d]);
    std::fill(to + shape.dim, to + shape.padded, 0.0f);
  }
  /// The tile as a right operand whose rows are contracted, [words(kBlock), padded].
  static const Word* down(const AttentionShape&, const Word* tile, Word*) { return tile; }
  /// f32 [kBlock, kBlock] as a left operand whose columns are contracted.
  static Left<Word> by_columns(const float* x, Word*) { return {x, kBlock, 1}; }
  /// The left operand `x` with its rows contracted.
  static Left<Word> by_rows(const float* x, Word*) { return {x, 1, kBlock}; }
};

/// Tiles of bf16 pairs: f32 operands are rounded to bf16, as for any GEMM of bf16.
struct PairTiles {
  using Word = Pair;  ///< element of a tile
  /// Words of a row of `values` values.
  static constexpr std::int64_t words(std::int64_t values) { return values / 2; }
  /// Bits of v as bf16.
  static Pair bits(float v) { return dtype::from_float<Bf16>(v).bits; }
  /// Writes the values of a row; zero past `dim`.
  static void read_row(const AttentionShape& shape, const Bf16* from, Pair* to) {
    std::memcpy(to, from, static_cast<std::size_t>(shape.dim) * sizeof(Bf16));
    std::memset(reinterpret_cast<std::byte*>(to) + shape.dim * 2, 0,
                static_cast<std::size_t>(shape.padded - shape.dim) * 2);
  }
  /// The tile as a right operand whose rows are contracted, [words(kBlock), padded], in `space`.
  static const Pair* down(const AttentionShape& shape, const Pair* tile, Pair* space) {
    const std::int64_t width = words(shape.padded);
    for (std::int64_t i = 0; i < kBlock / 2; ++i) {
      const Pair *even = tile + 2 * i * width, *odd = even + width;
      Pair* to = space + i * shape.padded;
#pragma omp simd
      for (std::int64_t d = 0; d < width; ++d) {
        to[2 * d] = (even[d] & 0xFFFFu) | odd[d] << 16;
        to[2 * d + 1] = even[d] >> 16 | (odd[d] & 0xFFFF0000u);
      }
    }
    return space;
  }
  /// f32 [kBlock, kBlock] as a left operand whose columns are contracted, in `space`.
  static Left<Pair> by_columns(const float* x, Pair* space) {
#pragma omp simd
    for (std::int64_t i = 0; i < kScores / 2; ++i) space[i] = bits(x[2 * i]) | bits(x[2 * i + 1]) << 16;
    return {space, kBlock / 2, 1};
  }
  /// The left operand `x` with its rows contracted.
  static Left<Pair> by_rows(const float* x, Pair* space) {
    for (std::int64_t j = 0; j < kBlock; j += 2) {
      const float *even = x + j * kBlock, *odd = even + kBlock;
      Pair* to = space + j / 2 * kBlock;
#pragma omp simd
      for (std::int64_t i = 0; i < kBlock; ++i) to[i] = bits(even[i]) | bits(odd[i]) << 16;
    }
    return {space, 1, kBlock};
  }
};

/// Tiles of activations T for this instruction set.
template <class T>
using TilesOf = std::conditional_t<std::is_same_v<T, Bf16> && kMultipliesPairs, PairTiles, Tiles<T>>;
/// Their word.
template <class T>
using WordOf = typename TilesOf<T>::Word;

/// The loops of tile.isa.cc for this instruction set and type of word.
inline void multiply_tile(std::int64_t m, std::int64_t n, std::int64_t k, Left<float> a, Rectangle<const float> b,
                          Rectangle<float> c, bool accumulate) {
  FP8_ISA::kTileKernels.multiply(m, n, k, a, b, c, accumulate);
}
inline void multiply_tile(std::int64_t m, std::int64_t n, std::int64_t k, Left<Pair> a, Rectangle<const Pair> b,
                          Rectangle<float> c, bool accumulate) {
  FP8_ISA::kTileKernels.multiply_pairs(m, n, k, a, b, c, accumulate);
}
inline void transpose_tile(std::int64_t rows, std::int64_t columns, Rectangle<const float> in, Rectangle<float> out) {
  FP8_ISA::kTileKernels.transpose(rows, columns, in, out);
}
inline void transpose_tile(std::int64_t rows, std::int64_t columns, Rectangle<const Pair> in, Rectangle<Pair> out) {
  FP8_ISA::kTileKernels.transpose_pairs(rows, columns, in, out);
}

/// tile [kBlock, words(padded)] = rows of one head of tile `block`; zero past the end and past dim.
template <class T>
void read_tile(const AttentionShape& shape, Head<const T> head, std::int64_t block, WordOf<T>* tile) {
  const std::int64_t rows = shape.rows(block), width = TilesOf<T>::words(shape.padded);
  for (std::int64_t i = 0; i < rows; ++i)
    TilesOf<T>::read_row(shape, head.data + (block * kBlock + i) * head.stride, tile + i * width);
  std::fill(tile + rows * width, tile + kBlock * width, WordOf<T>{});
}

/// across [words(padded), kBlock] = the tile transposed: a right operand whose columns were contracted.
template <class T>
void transpose_tile(const AttentionShape& shape, const WordOf<T>* tile, WordOf<T>* across) {
  const std::int64_t width = TilesOf<T>::words(shape.padded);
  transpose_tile(kBlock, width, {tile, width}, {across, kBlock});
}

/// Rows of one head from a tile of sums, times `factor`, rounded once.
template <class T>
void write_tile(const AttentionShape& shape, const float* tile, float factor, std::int64_t block, Head<T> head) {
  for (std::int64_t i = 0; i < shape.rows(block); ++i) {
    const float* from = tile + i * shape.padded;
    T* to = head.data + (block * kBlock + i) * head.stride;
#pragma omp simd
    for (std::int64_t d = 0; d < shape.dim; ++d) to[d] = dtype::from_float<T>(from[d] * factor);
  }
}

/// Transposed scores [keys, queries] = a tile of keys times queries transposed by transpose_tile().
template <class T>
void score_tile(const AttentionShape& shape, const WordOf<T>* keys, const WordOf<T>* queries_across, float* scores) {
  const std::int64_t width = TilesOf<T>::words(shape.padded);
  multiply_tile(kBlock, kBlock, width, Left<WordOf<T>>{keys, width, 1}, {queries_across, kBlock}, {scores, kBlock},
                false);
}

/// sums [kBlock, padded] += left times a tile of down().
template <class T>
void add_tile(const AttentionShape& shape, const Left<WordOf<T>>& left, const WordOf<T>* down, float* sums) {
  multiply_tile(kBlock, shape.padded, TilesOf<T>::words(kBlock), left, {down, shape.padded}, {sums, shape.padded},
                true);
}

/// Divides a thread's scratch memory, whose size is in floats.
class Parts {
 public:
  /// Begins at `base`.
  explicit Parts(float* base) : at_(base) {}
  /// The next `count` elements.
  template <class Word>
  Word* next(std::int64_t count) {
    static_assert(sizeof(Word) == sizeof(float));
    return reinterpret_cast<Word*>(std::exchange(at_, at_ + count));
  }

 private:
  float* at_;
};

}  // namespace fp8::ops
