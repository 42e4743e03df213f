// Register blocks of kTileRows x (1 to kColumnVectors) vectors; every block walks the whole contraction before it
// touches memory again.
#include "tile.h"

#include <algorithm>
#include <cstring>

namespace fp8::ops {
namespace {

using Vector [[gnu::vector_size(kLanes * sizeof(float))]] = float;

// A vector at an address of any alignment.
inline void load(const float* from, Vector& to) { std::memcpy(&to, from, sizeof to); }
inline void store(const Vector& from, float* to) { std::memcpy(to, &from, sizeof from); }

void multiply_block(std::int64_t k, Left a, Rectangle<const float> b, Rectangle<float> c, bool accumulate) {
  Vector sum[kTileRows] = {};
  for (std::int64_t p = 0; p < k; ++p) {
    Vector right;
    load(b.data + p * b.stride, right);
#pragma GCC unroll kTileRows
    for (int i = 0; i < kTileRows; ++i) sum[i] += a.data[i * a.row + p * a.column] * right;
  }
#pragma GCC unroll kTileRows
  for (int i = 0; i < kTileRows; ++i) {
    Vector before = {};
    if (accumulate) load(c.data + i * c.stride, before);
    store(before + sum[i], c.data + i * c.stride);
  }
}

}  // namespace

void multiply_tile(std::int64_t m, std::int64_t n, std::int64_t k, Left a, Rectangle<const float> b, Rectangle<float> c,
                   bool accumulate) {
  for (std::int64_t column = 0; column < n; column += kLanes) {
    const Rectangle<const float> right{b.data + column, b.stride};
    for (std::int64_t i = 0; i < m; i += kTileRows) {
      multiply_block(k, {a.data + i * a.row, a.row, a.column}, right, {c.data + i * c.stride + column, c.stride},
                     accumulate);
    }
  }
}

void transpose_tile(std::int64_t rows, std::int64_t columns, Rectangle<const float> in, Rectangle<float> out) {
  constexpr std::int64_t kSide = 8;
  for (std::int64_t r = 0; r < rows; r += kSide) {
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t i = r; i < std::min(rows, r + kSide); ++i)
        out.data[c * out.stride + i] = in.data[i * in.stride + c];
    }
  }
}

}  // namespace fp8::ops
