/// Products of small f32 tiles that lie in the cache: the inner loops of attention. Register-blocked with the
/// compiler's vector types, so that the width does not depend on what a vectorizer prefers. Not a BLAS: the left
/// operand's rows come in multiples of kTileRows, the right operand's columns in multiples of kLanes.
#pragma once

#include <cstdint>

namespace fp8::ops {

#ifdef __AVX512F__
inline constexpr int kLanes = 16;  ///< floats of a vector
#else
inline constexpr int kLanes = 8;  ///< floats of a vector
#endif
inline constexpr int kTileRows = 8;  ///< rows of a register block: sums that a processor can keep in flight

/// Left operand: element (i, p) is data[i * row + p * column], so that a transposed tile needs no copy.
struct Left {
  const float* data;    ///< first element
  std::int64_t row;     ///< floats between rows
  std::int64_t column;  ///< floats between columns
};

/// Right operand and result: rows of contiguous floats.
template <class T>
struct Rectangle {
  T* data;              ///< first element
  std::int64_t stride;  ///< floats between rows
};

/// c [m, n] = (accumulate ? c : 0) + a [m, k] b [k, n]; m % kTileRows == 0, n % kLanes == 0. Sums run over p in order,
/// from zero, and are added to c once.
void multiply_tile(std::int64_t m, std::int64_t n, std::int64_t k, Left a, Rectangle<const float> b, Rectangle<float> c,
                   bool accumulate);

/// out [columns, rows] = in [rows, columns] transposed; strides in floats.
void transpose_tile(std::int64_t rows, std::int64_t columns, Rectangle<const float> in, Rectangle<float> out);

}  // namespace fp8::ops
