// Register blocks of kTileRows x kColumnVectors vectors, limited by the number of registers; a block accumulates the
// whole contraction in registers.
#include "tile.h"

#include <cstring>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include "fp8/base/fma.h"

namespace fp8::ops {
namespace {

#ifdef __AVX512F__
constexpr int kLanes = 16, kColumnVectors = 2;
#else
constexpr int kLanes = 8, kColumnVectors = 1;
#endif

using Vector [[gnu::vector_size(kLanes * sizeof(float))]] = float;

// Loads a vector from an address of any alignment.
template <class V, class T>
inline void load(const T* from, V& to) {
  std::memcpy(&to, from, sizeof to);
}
inline void store(const Vector& from, float* to) { std::memcpy(to, &from, sizeof from); }

// left - 0 is left in each lane; left + 0 would lose the sign of -0.
inline void add_product(Vector& sum, float left, const Vector& right) {
  sum = fused_multiply_add(left - Vector{}, right, sum);
}

#ifdef __AVX512BF16__
using Pairs [[gnu::vector_size(kLanes * sizeof(Pair))]] = Pair;

inline void add_product(Vector& sum, Pair left, const Pairs& right) {
  sum = (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(Pairs{} + left), (__m512bh)right);
}
#endif

// c [kTileRows, kColumns vectors]
template <int kColumns, class V, class Word>
void multiply_block(std::int64_t k, Left<Word> a, Rectangle<const Word> b, Rectangle<float> c, bool accumulate) {
  Vector sum[kTileRows][kColumns] = {};
  for (std::int64_t p = 0; p < k; ++p) {
    V right[kColumns];
#pragma GCC unroll 2
    for (int j = 0; j < kColumns; ++j) load(b.data + p * b.stride + j * kLanes, right[j]);
#pragma GCC unroll kTileRows
    for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; ++j) add_product(sum[i][j], a.data[i * a.row + p * a.column], right[j]);
    }
  }
#pragma GCC unroll kTileRows
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kColumns; ++j) {
      float* at = c.data + i * c.stride + j * kLanes;
      Vector before = {};
      if (accumulate) load(at, before);
      store(before + sum[i][j], at);
    }
  }
}

template <class V, class Word>
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, Left<Word> a, Rectangle<const Word> b, Rectangle<float> c,
              bool accumulate) {
  for (std::int64_t column = 0; column < n;) {
    const bool whole = n - column >= kColumnVectors * kLanes;
    const Rectangle<const Word> right{b.data + column, b.stride};
    for (std::int64_t i = 0; i < m; i += kTileRows) {
      const Left<Word> left{a.data + i * a.row, a.row, a.column};
      const Rectangle<float> out{c.data + i * c.stride + column, c.stride};
      if (whole)
        multiply_block<kColumnVectors, V>(k, left, right, out, accumulate);
      else
        multiply_block<1, V>(k, left, right, out, accumulate);
    }
    column += whole ? kColumnVectors * kLanes : kLanes;
  }
}

template <class T>
void transpose(std::int64_t rows, std::int64_t columns, Rectangle<const T> in, Rectangle<T> out) {
  constexpr std::int64_t kSide = 16;
  for (std::int64_t r = 0; r < rows; r += kSide) {
    for (std::int64_t c = 0; c < columns; ++c) {
      T* to = out.data + c * out.stride + r;
      const T* from = in.data + r * in.stride + c;
      for (std::int64_t i = 0; i < kSide; ++i) to[i] = from[i * in.stride];
    }
  }
}

}  // namespace

constinit const TileKernels FP8_ISA::kTileKernels{
    .lanes = kLanes,
    .multiply = multiply<Vector, float>,
#ifdef __AVX512BF16__
    .multiply_pairs = multiply<Pairs, Pair>,
#else
    .multiply_pairs = nullptr,
#endif
    .transpose = transpose<float>,
    .transpose_pairs = transpose<Pair>,
};

}  // namespace fp8::ops
