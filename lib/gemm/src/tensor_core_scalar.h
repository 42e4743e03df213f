/// The rule of tensor_core_kernels.h one sum at a time, word by word: the path of CPUs without one of their own.
#pragma once

#include <cmath>

#include "tensor_core_blocks.h"

namespace fp8::gemm::tensor_core {

/// See sums().
struct ScalarPath {
  static constexpr int kPanel = 8;  ///< columns

  /// The next accumulator of one sum. Products are exact in double, and so are their sums in units of 2^(E-13).
  template <int kBlock>
  static float next(const BlockA<kBlock>& a, const BlockB<kBlock, kPanel>& b, int column, float c) {
    constexpr int kFraction = 13;
    const auto byte_b = [&](int k) { return static_cast<int>(b.exponents[k / 4][column] >> k % 4 * 8 & 0xFF); };
    const auto zero = [&](int k) { return a.exponents[k] == 0 || byte_b(k) == 0; };
    int exponent = c != 0 ? std::ilogb(c) : -132;
    for (int k = 0; k < kBlock; ++k)
      if (!zero(k)) exponent = std::max(exponent, a.exponents[k] - kBiasA + byte_b(k) - kBiasB);
    double sum = std::trunc(std::ldexp(static_cast<double>(c), kFraction - exponent));
    for (int k = 0; k < kBlock; ++k) {
      const double product = static_cast<double>(a.values[k]) * static_cast<double>(b.values[k][column]);
      if (!zero(k)) sum += std::trunc(std::ldexp(product, kFraction - exponent));
    }
    if (sum == 0) return 0;
    const int excess = std::ilogb(sum) - kFraction;
    return static_cast<float>(std::ldexp(std::trunc(std::ldexp(sum, -excess)), excess + exponent - kFraction));
  }

  /// See sums().
  template <int kBlock>
  static void add_block(const BlockA<kBlock>* a, std::int64_t rows, const BlockB<kBlock, kPanel>& b, float* c,
                        std::int64_t stride) {
    for (std::int64_t row = 0; row < rows; ++row)
      for (int j = 0; j < kPanel; ++j) c[row * stride + j] = next(a[row], b, j, c[row * stride + j]);
  }
};

}  // namespace fp8::gemm::tensor_core
