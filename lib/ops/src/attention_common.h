/// What the forward and the backward of attention share: shapes, tiles of q, k, v read into f32, the mask. Scores are
/// kept transposed, [keys, queries]: then the softmax works on lanes of queries, and only the queries of a block are
/// transposed, once, not every key.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "fp8/ops/attention.h"
#include "rows.h"
#include "tile.h"

namespace fp8::ops {

inline constexpr std::int64_t kBlock = 64;                                 ///< queries and keys of a tile
inline constexpr std::int64_t kScores = kBlock * kBlock;                   ///< floats of a tile of scores
inline constexpr float kMasked = -std::numeric_limits<float>::infinity();  ///< score of a pair that may not meet

/// Sizes of one call.
struct AttentionShape {
  std::int64_t batch, positions, heads, groups, dim;
  std::int64_t padded;  ///< dim rounded up to whole vectors
  std::int64_t blocks;  ///< tiles along the positions

  /// Checks all views of a call against each other; throws Error.
  AttentionShape(const View& q, const View& k, const View& v, const View& out, const View& lse,
                 const Documents& documents);
  /// Floats of a tile [kBlock, padded].
  std::int64_t tile() const { return kBlock * padded; }
  /// Rows of tile `block` that exist.
  std::int64_t rows(std::int64_t block) const { return std::min(kBlock, positions - block * kBlock); }
};

/// Rows of one head of a [B, T, heads, D] view.
template <class T>
struct Head {
  T* data;              ///< position 0
  std::int64_t stride;  ///< elements between positions

  Head(const View& v, std::int64_t b, std::int64_t h)
      : data(static_cast<T*>(v.data) + b * v.stride[0] + h * v.stride[2]), stride(v.stride[1]) {}
};

/// Which keys the queries of one tile may meet.
class Mask {
 public:
  /// Of query tile `block` of sequence b.
  Mask(const AttentionShape& shape, const Documents& documents, std::int64_t b, std::int64_t block) {
    const std::int32_t* start =
        documents.start.rank == 0 ? nullptr : documents.start.as<std::int32_t>() + b * shape.positions;
    for (std::int64_t i = 0; i < kBlock; ++i) {
      const std::int64_t position = block * kBlock + i;
      const bool known = start != nullptr && position < shape.positions;
      last_[i] = static_cast<std::int32_t>(position);
      first_[i] = known ? std::clamp(start[position], 0, last_[i]) : 0;
    }
    // Rows beyond the end meet key 0, which costs nothing: they are not written, and they do not widen the range
    // either.
    const std::int64_t rows = shape.rows(block);
    lowest_ = *std::min_element(first_, first_ + rows);
    highest_ = *std::max_element(first_, first_ + rows);
  }
  /// First tile of keys that any of the queries meets.
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

/// tile [kBlock, padded] = rows of one head of tile `block`; zero beyond the end and beyond dim.
template <class T>
void read_tile(const AttentionShape& shape, Head<const T> head, std::int64_t block, float* tile) {
  const std::int64_t rows = shape.rows(block);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* from = head.data + (block * kBlock + i) * head.stride;
    float* to = tile + i * shape.padded;
#pragma omp simd
    for (std::int64_t d = 0; d < shape.dim; ++d) to[d] = dtype::to_float(from[d]);
    std::fill(to + shape.dim, to + shape.padded, 0.0f);
  }
  std::fill(tile + rows * shape.padded, tile + shape.tile(), 0.0f);
}

/// Rows of one head from a tile, times `factor`, rounded once.
template <class T>
void write_tile(const AttentionShape& shape, const float* tile, float factor, std::int64_t block, Head<T> head) {
  for (std::int64_t i = 0; i < shape.rows(block); ++i) {
    const float* from = tile + i * shape.padded;
    T* to = head.data + (block * kBlock + i) * head.stride;
#pragma omp simd
    for (std::int64_t d = 0; d < shape.dim; ++d) to[d] = dtype::from_float<T>(from[d] * factor);
  }
}

/// Transposed scores [keys, queries] = keys [kBlock, padded] times queries, transposed [dim, kBlock].
inline void score_tile(const AttentionShape& shape, const float* keys, const float* queries_t, float* scores) {
  multiply_tile(kBlock, kBlock, shape.dim, {keys, shape.padded, 1}, {queries_t, kBlock}, {scores, kBlock}, false);
}

}  // namespace fp8::ops
