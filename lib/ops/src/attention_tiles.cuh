// Tiles of 64 x 64 floats in shared memory, and GEMMs of tiles, for the kernels of attention.cuh. A block has 16 x 16
// threads, each with 4 x 4 results in registers. Without tensor cores.
#pragma once

#include <limits>

#include "attention_heads.h"
#include "rows.cuh"

namespace fp8::ops {

inline constexpr int kTile = 64;    // queries, keys, or elements of a head
inline constexpr int kPitch = 68;   // row stride in floats: 16 bytes of adjacent rows are in different banks
inline constexpr int kSide = 16;    // threads along a side of a block
inline constexpr int kResults = 4;  // results of a thread along a side
static_assert(kSide * kSide == kThreads && kSide * kResults == kTile);

using TileRow = float[kPitch];

// A thread's part of a tile: rows first_row() + i; columns side() * 4 + j, or, of scores, side() + 16 j.
struct Part {
  float at[kResults][kResults] = {};
};
__device__ inline int side() { return static_cast<int>(threadIdx.x) % kSide; }
__device__ inline int first_row() { return static_cast<int>(threadIdx.x) / kSide * kResults; }

// tile[r][e] = element d0 + e of position first + r; zero past the ends.
template <class T>
__device__ void read_tile(const HeadRows<T>& head, std::int64_t first, int d0, TileRow* tile) {
  if (head.packed) {
    FP8_UNROLL
    for (int k = 0; k < kTile * kTile / kWide / kThreads; ++k) {
      const int group = k * kThreads + static_cast<int>(threadIdx.x);
      const int r = group / (kTile / kWide), e = group % (kTile / kWide) * kWide;
      const bool inside = first + r < head.positions && d0 + e < head.dim;
      const Group<T, kWide> from = inside ? load<kWide>(head.at(first + r) + d0 + e) : Group<T, kWide>{};
      Group<float, kWide> to;
      FP8_UNROLL
      for (int j = 0; j < kWide; ++j) to.at[j] = to_float(from.at[j]);
      store<kWide>(&tile[r][e], to);
    }
    return;
  }
  for (int k = static_cast<int>(threadIdx.x); k < kTile * kTile; k += kThreads) {
    const int r = k / kTile, e = k % kTile;
    const bool inside = first + r < head.positions && d0 + e < head.dim;
    tile[r][e] = inside ? to_float(head.at(first + r)[d0 + e]) : 0.0f;
  }
}

// Element d0 + columns of positions first + rows = part * factor of the row, rounded once; only within the tensor.
template <class T>
__device__ void write_part(const HeadRows<T>& head, std::int64_t first, int d0, const Part& part,
                           const float (&factor)[kResults]) {
  const int c = d0 + side() * kResults;
  FP8_UNROLL
  for (int i = 0; i < kResults; ++i) {
    const std::int64_t t = first + first_row() + i;
    if (t >= head.positions) continue;
    FP8_UNROLL
    for (int j = 0; j < kResults; ++j) {
      if (c + j < head.dim) head.at(t)[c + j] = from_float<T>(part.at[i][j] * factor[i]);
    }
  }
}

// A tile of scores: part at its rows and columns side() + 16 j.
__device__ inline void write_scores(const Part& part, TileRow* tile) {
  FP8_UNROLL
  for (int i = 0; i < kResults; ++i) {
    FP8_UNROLL
    for (int j = 0; j < kResults; ++j) tile[first_row() + i][side() + kSide * j] = part.at[i][j];
  }
}

// scores += a b^T: rows of a are queries, of b keys.
__device__ inline void multiply_rows(const TileRow* a, const TileRow* b, Part& scores) {
  for (int k = 0; k < kTile; k += 4) {
    Group<float, 4> left[kResults], right[kResults];
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) {
      left[i] = load<4>(&a[first_row() + i][k]);
      right[i] = load<4>(&b[side() + kSide * i][k]);
    }
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) {
      FP8_UNROLL
      for (int j = 0; j < kResults; ++j) {
        FP8_UNROLL
        for (int n = 0; n < 4; ++n) scores.at[i][j] = std::fma(left[i].at[n], right[j].at[n], scores.at[i][j]);
      }
    }
  }
}

// sum += a b.
__device__ inline void multiply(const TileRow* a, const TileRow* b, Part& sum) {
  for (int k = 0; k < kTile; k += 4) {
    Group<float, 4> left[kResults];
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) left[i] = load<4>(&a[first_row() + i][k]);
    FP8_UNROLL
    for (int n = 0; n < 4; ++n) {
      const Group<float, 4> right = load<4>(&b[k + n][side() * kResults]);
      FP8_UNROLL
      for (int i = 0; i < kResults; ++i) {
        FP8_UNROLL
        for (int j = 0; j < kResults; ++j) sum.at[i][j] = std::fma(left[i].at[n], right.at[j], sum.at[i][j]);
      }
    }
  }
}

// sum += a^T b.
__device__ inline void multiply_transposed(const TileRow* a, const TileRow* b, Part& sum) {
  FP8_UNROLL_BY_4
  for (int k = 0; k < kTile; ++k) {
    const Group<float, 4> left = load<4>(&a[k][first_row()]), right = load<4>(&b[k][side() * kResults]);
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) {
      FP8_UNROLL
      for (int j = 0; j < kResults; ++j) sum.at[i][j] = std::fma(left.at[i], right.at[j], sum.at[i][j]);
    }
  }
}

// scores += all of the queries' rows times the keys', chunk by chunk through the tiles a and b.
template <class T>
__device__ void multiply_heads(const HeadRows<T>& queries, std::int64_t query, const HeadRows<T>& keys,
                               std::int64_t key, TileRow* a, TileRow* b, Part& scores) {
  for (int d0 = 0; d0 < queries.dim; d0 += kTile) {
    __syncthreads();
    read_tile(queries, query, d0, a);
    read_tile(keys, key, d0, b);
    __syncthreads();
    multiply_rows(a, b, scores);
  }
}

struct Least {
  __device__ std::int32_t operator()(std::int32_t a, std::int32_t b) const { return b < a ? b : a; }
};

// The mask of this thread's four queries, and the first key that is not masked for all queries of the tile.
struct Queries {
  std::int32_t first[kResults], last[kResults], lowest = 0;
  __device__ Queries(const std::int32_t* start, std::int64_t query, std::int64_t positions) {
    FP8_UNROLL
    for (int i = 0; i < kResults; ++i) {
      const std::int64_t t = query + first_row() + i;
      first[i] = first_key(start, t, positions);
      last[i] = static_cast<std::int32_t>(t);
    }
    if (start == nullptr) return;  // the same for all threads
    const std::int64_t t = query + static_cast<int>(threadIdx.x) % kTile;
    const std::int32_t mine = t < positions ? first_key(start, t, positions) : std::numeric_limits<std::int32_t>::max();
    lowest = device::block_combine<kThreads>(mine, Least{});
  }
  __device__ static std::int32_t first_key(const std::int32_t* start, std::int64_t t, std::int64_t positions) {
    if (start == nullptr || t >= positions || start[t] < 0) return 0;
    const auto last = static_cast<std::int32_t>(t);
    return start[t] < last ? start[t] : last;
  }
  // Whether query i of the thread attends to key j of its columns in the tile from `key` on.
  __device__ bool meets(int i, std::int64_t key, int j) const {
    const std::int64_t k = key + side() + kSide * j;
    return k >= first[i] && k <= last[i];
  }
};

// Reduces over the 16 threads that share rows; all get the same bits.
template <class Combine>
__device__ float side_combine(float v, Combine combine) {
  FP8_UNROLL
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    v = combine(v, __shfl_xor_sync(device::kAllLanes, v, distance));
  return v;
}

}  // namespace fp8::ops
