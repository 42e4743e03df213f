/// Packed blocks of operands for the sums of tensor_core_kernels.h, and the parts that are the same for every
/// instruction set: packing, chains and a scalar path. Compiled once for each instruction set.
///
/// Zeros, padding, NaN and infinities are packed as 2^-100 with a sign: its products are below 2^(E-13) and add
/// nothing. Its exponent byte is 0, below that of all other values.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor_core_kernels.h"

namespace fp8::gemm::tensor_core {

/// Biases of exponent bytes; the sum of two bytes has the bias of f32.
inline constexpr int kBiasA = 64, kBiasB = 63;

/// A block of one row of A.
template <int kBlock>
struct BlockA {
  /// Values times 1 + 2^-16: their products are truncated to the same values, and none is a multiple of the unit of
  /// truncation.
  float values[kBlock];
  std::uint8_t exponents[kBlock];  ///< plus kBiasA; 0 for zero
  std::uint32_t negative;          ///< bit k: value k is negative
};

/// A block of a panel of B.
template <int kBlock, int kPanel>
struct BlockB {
  float values[kBlock][kPanel];                 ///< unchanged
  std::uint32_t exponents[kBlock / 4][kPanel];  ///< exponents of four adjacent values along K, one byte each, plus
                                                ///< kBiasB; 0 for zero
  std::uint32_t negative[kPanel];               ///< bit k: value k of the column is negative
};

/// Number of values that are packed together.
inline constexpr int kAtOnce = 8;
/// One value per lane.
using Lanes [[gnu::vector_size(4 * kAtOnce)]] = std::uint32_t;

/// Values and exponent bytes for a block.
struct Elements {
  Lanes bits;      ///< bits of an f32
  Lanes exponent;  ///< exponent bytes
  Lanes special;   ///< nonzero for NaN and infinities
};

/// Elements from bf16. `least` is the exponent of the format's smallest normal; bytes are exponents plus `bias`.
inline Elements elements_of(const std::uint16_t* from, int least, int bias) {
  constexpr std::uint32_t kInfinity = 0x7F80, kTiny = 27 << 7;
  constexpr int kBias = 127;
  using Halves [[gnu::vector_size(2 * kAtOnce)]] = std::uint16_t;
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const Lanes bits = __builtin_convertvector(halves, Lanes), magnitude = bits & 0x7FFF, field = magnitude >> 7;
  const Lanes least_field = Lanes{} + static_cast<std::uint32_t>(least + kBias);
  const Lanes exponent = (field > least_field ? field : least_field) + static_cast<std::uint32_t>(bias - kBias);
  const auto keep = std::bit_cast<Lanes>(magnitude - 1 < kInfinity - 1);  // all ones: neither zero nor special
  const auto special = std::bit_cast<Lanes>(magnitude >= kInfinity);
  return {((bits & keep) | (kTiny & ~keep)) << 16, exponent & keep, special};
}

/// The bitwise or of all lanes.
inline std::uint32_t any_of(Lanes lanes) {
  std::uint32_t any = 0;
  for (int i = 0; i < kAtOnce; ++i) any |= lanes[i];
  return any;
}

/// out[i, j] = in[i * row_stride + j * column_stride] for i < rows and j < columns, else zero; out [kRows, kColumns].
template <int kRows, int kColumns>
void collect(const std::uint16_t* in, std::int64_t row_stride, std::int64_t column_stride, std::int64_t rows,
             std::int64_t columns, std::uint16_t (&out)[kRows][kColumns]) {
  const bool whole = rows >= kRows && columns >= kColumns;
  if (whole && column_stride == 1) {
    for (int i = 0; i < kRows; ++i) std::memcpy(out[i], in + i * row_stride, sizeof out[i]);
    return;
  }
  if (whole) {
    for (int j = 0; j < kColumns; ++j)
      for (int i = 0; i < kRows; ++i) out[i][j] = in[i * row_stride + j * column_stride];
    return;
  }
  std::memset(out, 0, sizeof out);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(rows, kRows); ++i)
    for (std::int64_t j = 0; j < std::min<std::int64_t>(columns, kColumns); ++j)
      out[i][j] = in[i * row_stride + j * column_stride];
}

/// Packs one block of one row; returns whether a value is NaN or infinite.
template <int kBlock>
bool pack_row(const std::uint16_t (&bits)[kBlock], int least, BlockA<kBlock>& out) {
  using Floats [[gnu::vector_size(4 * kAtOnce)]] = float;
  constexpr Lanes kLane{0, 1, 2, 3, 4, 5, 6, 7};
  Lanes negative{}, special{};
  std::uint32_t exponents[kBlock];
  for (int k = 0; k < kBlock; k += kAtOnce) {
    const Elements e = elements_of(bits + k, least, kBiasA);
    const Floats values = std::bit_cast<Floats>(e.bits) * (1 + 0x1p-16f);
    std::memcpy(out.values + k, &values, sizeof values);
    std::memcpy(exponents + k, &e.exponent, sizeof e.exponent);
    negative |= e.bits >> 31 << (kLane + static_cast<std::uint32_t>(k));
    special |= e.special;
  }
#pragma omp simd
  for (int k = 0; k < kBlock; ++k) out.exponents[k] = static_cast<std::uint8_t>(exponents[k]);
  out.negative = any_of(negative);
  return any_of(special) != 0;
}

/// Packs one block of a panel; returns whether a value is NaN or infinite.
template <int kBlock, int kPanel>
bool pack_columns(const std::uint16_t (&bits)[kBlock][kPanel], int least, BlockB<kBlock, kPanel>& out) {
  Lanes special{};
  for (int j = 0; j < kPanel; j += kAtOnce) {
    Lanes negative{};
    for (int k = 0; k < kBlock; k += 4) {
      Lanes exponents{};
      for (int i = 0; i < 4; ++i) {
        const Elements e = elements_of(bits[k + i] + j, least, kBiasB);
        std::memcpy(out.values[k + i] + j, &e.bits, sizeof e.bits);
        exponents |= e.exponent << 8 * i;
        negative |= e.bits >> 31 << (k + i);
        special |= e.special;
      }
      std::memcpy(out.exponents[k / 4] + j, &exponents, sizeof exponents);
    }
    std::memcpy(out.negative + j, &negative, sizeof negative);
  }
  return any_of(special) != 0;
}

/// See TensorCoreLoops.
template <int kBlock>
bool pack_a(const CodeMatrix& a, std::int64_t begin, std::int64_t rows, std::int64_t first, std::int64_t blocks,
            std::byte* to, std::int64_t stride) {
  constexpr int kGroup = 16;
  auto* const out = reinterpret_cast<BlockA<kBlock>*>(to);
  bool special = false;
  for (std::int64_t row = begin; row < begin + rows; row += kGroup) {
    const std::int64_t count = std::min<std::int64_t>(kGroup, begin + rows - row);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t k = (first + block) * kBlock;
      std::uint16_t tile[kGroup][kBlock];
      collect(a.values + row * a.outer_stride + k * a.depth_stride, a.outer_stride, a.depth_stride, a.outer - row,
              a.depth - k, tile);
      for (std::int64_t i = 0; i < count; ++i)
        special |= pack_row(tile[i], a.least, out[block * stride + row - begin + i]);
    }
  }
  return special;
}

/// See TensorCoreLoops.
template <int kBlock, int kPanel>
bool pack_b(const CodeMatrix& b, std::int64_t begin, std::int64_t first, std::int64_t blocks, std::byte* to) {
  auto* const out = reinterpret_cast<BlockB<kBlock, kPanel>*>(to);
  bool special = false;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t k = (first + block) * kBlock;
    std::uint16_t tile[kBlock][kPanel];
    collect(b.values + begin * b.outer_stride + k * b.depth_stride, b.depth_stride, b.outer_stride, b.depth - k,
            b.outer - begin, tile);
    special |= pack_columns(tile, b.least, out[block]);
  }
  return special;
}

/// c[row] = the chain (fast), or c[row] plus the chain, times its scales if there are any, for one chain of a panel.
template <int kPanel>
void end_chain(const float (*chain)[kPanel], std::int64_t rows, bool fast, const float* scale_a, const float* scale_b,
               float* c, std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    float* const to = c + row * stride;
    if (fast) {
      for (int j = 0; j < kPanel; ++j) to[j] = chain[row][j];
    } else if (scale_a == nullptr) {
      for (int j = 0; j < kPanel; ++j) to[j] = to[j] + chain[row][j];
    } else {
      for (int j = 0; j < kPanel; ++j) to[j] = to[j] + scale_a[row] * scale_b[j] * chain[row][j];
    }
  }
}

/// See TensorCoreLoops. Path::add_block() continues accumulators [rows, panel] by one block.
template <class Path, int kBlock>
void sums(const PackedBlocks& packed, bool fast, const ChainScales& scales, float* c, std::int64_t stride) {
  const auto* const left = reinterpret_cast<const BlockA<kBlock>*>(packed.a);
  const auto* const right = reinterpret_cast<const BlockB<kBlock, Path::kPanel>*>(packed.b);
  const std::int64_t rows = packed.rows, blocks = packed.blocks;
  const std::int64_t length = fast ? blocks : kSlowChain / kBlock;
  alignas(64) float chain[kMostRows][Path::kPanel];
  const float *scale_a = scales.a, *scale_b = scales.b;
  for (std::int64_t begin = 0; begin < blocks; begin += length) {
    for (std::int64_t row = 0; row < rows; ++row)
      for (int j = 0; j < Path::kPanel; ++j) chain[row][j] = fast ? c[row * stride + j] : 0.0f;
    for (std::int64_t i = begin; i < std::min(blocks, begin + length); ++i)
      Path::add_block(left + i * packed.a_stride, rows, right[i], chain[0], Path::kPanel);
    end_chain<Path::kPanel>(chain, rows, fast, scale_a, scale_b, c, stride);
    if (scale_a == nullptr) continue;
    scale_a += scales.a_stride;
    scale_b += scales.b_stride;
  }
}

/// One sum at a time, for CPUs without a vector path.
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

/// The loops of a path for one length of a block.
template <class Path, int kBlock>
constexpr TensorCoreLoops loops() {
  return {kBlock,         sizeof(BlockA<kBlock>),       sizeof(BlockB<kBlock, Path::kPanel>),
          pack_a<kBlock>, pack_b<kBlock, Path::kPanel>, sums<Path, kBlock>};
}

/// The loops of a path.
template <class Path>
constexpr TensorCoreKernels kernels() {
  return {Path::kPanel, {loops<Path, 32>(), loops<Path, 16>()}};
}

}  // namespace fp8::gemm::tensor_core
