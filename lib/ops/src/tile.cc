// Register blocks of kTileRows x (1 to kColumnVectors) vectors; every block walks the whole contraction before it
// touches memory again.
#include "tile.h"

#include <algorithm>
#include <cstring>

namespace fp8::ops {
namespace {

// A vector of floats anywhere in memory, and one in a register.
using Vector [[gnu::vector_size(kLanes * sizeof(float))]] = float;

template <int V>
void multiply_block(std::int64_t k, Left a, Rectangle<const float> b, Rectangle<float> c, bool accumulate) {
  Vector sum[kTileRows][V] = {};
  for (std::int64_t p = 0; p < k; ++p) {
    Vector right[V];
    std::memcpy(right, b.data + p * b.stride, sizeof right);
    for (int i = 0; i < kTileRows; ++i) {
      const float left = a.data[i * a.row + p * a.column];
      for (int v = 0; v < V; ++v) sum[i][v] += left * right[v];
    }
  }
  for (int i = 0; i < kTileRows; ++i) {
    float* row = c.data + i * c.stride;
    if (accumulate) {
      Vector before[V];
      std::memcpy(before, row, sizeof before);
      for (int v = 0; v < V; ++v) sum[i][v] += before[v];
    }
    std::memcpy(row, sum[i], sizeof sum[i]);
  }
}

}  // namespace

void multiply_tile(std::int64_t m, std::int64_t n, std::int64_t k, Left a, Rectangle<const float> b, Rectangle<float> c,
                   bool accumulate) {
  for (std::int64_t column = 0; column < n; column += kColumnVectors * kLanes) {
    const std::int64_t vectors = std::min<std::int64_t>(kColumnVectors, (n - column) / kLanes);
    const Rectangle<const float> right{b.data + column, b.stride};
    for (std::int64_t i = 0; i < m; i += kTileRows) {
      const Left left{a.data + i * a.row, a.row, a.column};
      const Rectangle<float> out{c.data + i * c.stride + column, c.stride};
      if (vectors == 4) {
        multiply_block<4>(k, left, right, out, accumulate);
      } else if (vectors == 3) {
        multiply_block<3>(k, left, right, out, accumulate);
      } else if (vectors == 2) {
        multiply_block<2>(k, left, right, out, accumulate);
      } else {
        multiply_block<1>(k, left, right, out, accumulate);
      }
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
