/// Dropout of adjacent elements, shared by host loops and kernels. Private to this crate.
#pragma once

#include <cstdint>

#include "fp8/device/philox.h"
#include "fp8/dtype/element.h"
#include "fp8/ops/dropout.h"

namespace fp8::ops {

/// words[index % 4], selected by conditions: a kernel would copy an array with an index known at run time to local
/// memory.
FP8_HD inline std::uint32_t dropout_word(const std::array<std::uint32_t, 4>& words, std::uint64_t index) {
  const bool odd = (index & 1) != 0;
  const std::uint32_t low = odd ? words[1] : words[0], high = odd ? words[3] : words[2];
  return (index & 2) != 0 ? high : low;
}

/// Number of the first element of row i of a matrix of n columns, in row-major order of the whole matrix, counted from
/// the first row of the global batch.
FP8_HD inline std::uint64_t dropout_index(const Dropout& drop, std::int64_t i, std::int64_t n) {
  const std::int64_t columns = drop.columns > 0 ? drop.columns : n;
  return static_cast<std::uint64_t>((drop.first_row + i) * columns + drop.first_column);
}

/// Elements [index, index + n) of a matrix in row-major order, counted from the first row of the global batch. Four
/// elements share the words of one counter.
template <class T>
FP8_HD inline void dropout_run(const T* in, T* out, std::int64_t n, std::uint64_t index, const Dropout& drop) {
  const float factor = 1.0f / (1.0f - drop.probability);
  std::array<std::uint32_t, 4> words{};
  for (std::int64_t i = 0; i < n; ++i, ++index) {
    if (i == 0 || index % 4 == 0) words = device::philox(drop.seed, index / 4, drop.stream);
    const bool kept = device::unit_interval(dropout_word(words, index)) > drop.probability;
    out[i] = dtype::from_float<T>(kept ? dtype::to_float(in[i]) * factor : 0.0f);
  }
}

}  // namespace fp8::ops
