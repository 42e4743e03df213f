// C is computed in tiles, whose sums stay in the cache, and K in pieces: a piece of both operands is packed, then every
// panel of B is multiplied by every group of rows of A.
#include "tensor_core.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "blocks.h"
#include "fp8/base/round.h"
#include "fp8/dtype/element.h"

namespace fp8::gemm {
namespace {

constexpr std::int64_t kTileSide = 1024;  // rows and columns: 4 MiB of sums
constexpr std::int64_t kDepth = 512;      // extent of a piece along K, a whole number of chains
constexpr std::int64_t kLine = 16;        // floats of a cache line: avoids row strides of powers of two
static_assert(kDepth % kSlowChain == 0);

// Codes of an operand, `outer` being the dimension that is not contracted.
CodeMatrix codes_of(const Operand& o, int outer) {
  constexpr int kE4m3 = -6, kE5m2 = -14;
  const View& v = o.matrix;
  const auto at = static_cast<std::size_t>(outer);
  return {.values = static_cast<const std::uint16_t*>(v.data),
          .outer = v.shape[at],
          .depth = v.shape[1 - at],
          .outer_stride = v.stride[at],
          .depth_stride = v.stride[1 - at],
          .least = o.format == DType::e4m3 ? kE4m3 : kE5m2};
}

// Rows [begin, end) of the outer dimension.
CodeMatrix outer_part(CodeMatrix m, std::int64_t begin, std::int64_t end) {
  m.values += begin * m.outer_stride;
  m.outer = end - begin;
  return m;
}

float value_at(const CodeMatrix& m, std::int64_t outer, std::int64_t k) {
  return dtype::to_float(dtype::Bf16{m.values[outer * m.outer_stride + k * m.depth_stride]});
}

// The largest |x| along K; infinite or NaN if an element is.
float magnitude(const CodeMatrix& m, std::int64_t outer) {
  float largest = 0;
  for (std::int64_t k = 0; k < m.depth; ++k) {
    const float v = std::fabs(value_at(m, outer, k));
    if (!(v <= largest)) largest = v;
    if (std::isnan(v)) break;
  }
  return largest;
}

std::vector<float> magnitudes(const CodeMatrix& m) {
  std::vector<float> all(static_cast<std::size_t>(m.outer));
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < m.outer; ++i) all[static_cast<std::size_t>(i)] = magnitude(m, i);
  return all;
}

// The sum of products in IEEE arithmetic.
float ieee_sum(const CodeMatrix& a, std::int64_t row, const CodeMatrix& b, std::int64_t column) {
  float sum = 0;
  for (std::int64_t k = 0; k < a.depth; ++k) sum += value_at(a, row, k) * value_at(b, column, k);
  return sum;
}

// Replaces sums with a NaN or an infinity among their elements.
void replace_special(const CodeMatrix& a, const CodeMatrix& b, float* sums, std::int64_t stride) {
  const std::vector<float> of_a = magnitudes(a), of_b = magnitudes(b);
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < a.outer; ++i) {
    for (std::int64_t j = 0; j < b.outer; ++j) {
      const float both = of_a[static_cast<std::size_t>(i)] + of_b[static_cast<std::size_t>(j)];
      if (!std::isfinite(both)) sums[i * stride + j] = std::isnan(both) ? both : ieee_sum(a, i, b, j);
    }
  }
}

// The inverse scales of `count` outer indices from `begin` on, for each chain: to [chains, stride], zero past the end.
void collect_scales(const BlockScales& from, std::int64_t begin, std::int64_t count, std::int64_t stride, float* to) {
  const std::int64_t chains = from.scales.shape[1];
  std::fill_n(to, chains * stride, 0.0f);
  for (std::int64_t chain = 0; chain < chains; ++chain)
    for (std::int64_t i = 0; i < count; ++i) to[chain * stride + i] = from.at(begin + i, chain * kSlowChain);
}

}  // namespace

// A tile of C and its memory.
struct TensorCoreGemm::Tile {
  CodeMatrix a, b;  // the operands of this tile
  float* sums;      // [rows up to a multiple of kRowsAtOnce, stride]
  std::int64_t stride;
  ChainScales scales;  // scales of all rows and columns
};

std::size_t TensorCoreGemm::scratch_bytes() const { return a_.bytes() + b_.bytes() + sums_.bytes() + scales_.bytes(); }

// Computes the sums of a tile.
void TensorCoreGemm::sum(const Tile& tile, const TensorCoreLoops& loops, bool fast) {
  const std::int64_t rows = round_up(tile.a.outer, kRowsAtOnce), panels = divide_up(tile.b.outer, kernels_.panel);
  const std::int64_t groups = divide_up(rows, kMostRows), blocks = divide_up(tile.a.depth, loops.block);
  const std::int64_t piece = kDepth / loops.block;
  const auto a_bytes = static_cast<std::int64_t>(loops.a_bytes), b_bytes = static_cast<std::int64_t>(loops.b_bytes);
  std::byte *const a = a_.memory(), *const b = b_.memory();
  bool special = false;
  std::memset(tile.sums, 0, static_cast<std::size_t>(rows * tile.stride) * sizeof(float));
#pragma omp parallel reduction(|| : special)
  for (std::int64_t first = 0; first < blocks; first += piece) {
    const std::int64_t count = std::min(piece, blocks - first);
#pragma omp for schedule(static) nowait
    for (std::int64_t i = 0; i < groups; ++i) {
      const std::int64_t begin = i * kMostRows, n = std::min(kMostRows, rows - begin);
      special |= loops.pack_a(tile.a, begin, n, first, count, a + begin * a_bytes, rows);
    }
#pragma omp for schedule(static)
    for (std::int64_t j = 0; j < panels; ++j)
      special |= loops.pack_b(tile.b, j * kernels_.panel, first, count, b + j * piece * b_bytes);
#pragma omp for schedule(static) collapse(2)
    for (std::int64_t j = 0; j < panels; ++j) {
      for (std::int64_t i = 0; i < groups; ++i) {
        const std::int64_t begin = i * kMostRows, n = std::min(kMostRows, rows - begin);
        ChainScales scales = tile.scales;
        if (scales.a != nullptr) {
          const std::int64_t chain = first * loops.block / kSlowChain;
          scales.a += chain * scales.a_stride + begin;
          scales.b += chain * scales.b_stride + j * kernels_.panel;
        }
        loops.sums({a + begin * a_bytes, rows, n, b + j * piece * b_bytes, count}, fast, scales,
                   tile.sums + begin * tile.stride + j * kernels_.panel, tile.stride);
      }
    }
  }
  if (special) replace_special(tile.a, tile.b, tile.sums, tile.stride);
}

void TensorCoreGemm::run(bool dry, const Operand& a, const Operand& b, const View& c, const MatmulOptions& options) {
  if (c.size() == 0) return;
  const TensorCoreLoops& loops = kernels_.loops[options.accumulation == Accumulation::hopper ? 0 : 1];
  const CodeMatrix left = codes_of(a, 0), right = codes_of(b, 1);
  const std::int64_t rows = round_up(std::min(left.outer, kTileSide), kRowsAtOnce);
  const std::int64_t columns = round_up(std::min(right.outer, kTileSide), kernels_.panel);
  const std::int64_t stride = columns + kLine;
  const auto bytes = [&](std::int64_t n, std::size_t each) { return static_cast<std::size_t>(n) * each; };
  a_.need(bytes(kDepth / loops.block * rows, loops.a_bytes));
  b_.need(bytes(kDepth / loops.block * (columns / kernels_.panel), loops.b_bytes));
  sums_.need(bytes(rows * stride, sizeof(float)));
  const bool blocks = a.blocks != ScaleBlocks::none;
  const std::int64_t chains = blocks ? divide_up(left.depth, kSlowChain) : 0;
  scales_.need(bytes(chains * (rows + columns), sizeof(float)));
  if (dry) return;
  auto* const sums = reinterpret_cast<float*>(sums_.memory());
  auto* const scales = blocks ? reinterpret_cast<float*>(scales_.memory()) : nullptr;
  float* const scales_b = blocks ? scales + chains * rows : nullptr;
  Epilogue epilogue =
      blocks ? Epilogue{.bias = options.bias, .accumulate = options.accumulate} : epilogue_of(a, b, options);
  epilogue.product_of_scales = true;
  for (std::int64_t i = 0; i < left.outer; i += kTileSide) {
    for (std::int64_t j = 0; j < right.outer; j += kTileSide) {
      const std::int64_t i_end = std::min(left.outer, i + kTileSide), j_end = std::min(right.outer, j + kTileSide);
      if (blocks) {
        collect_scales(BlockScales(a, false), i, i_end - i, rows, scales);
        collect_scales(BlockScales(b, true), j, j_end - j, columns, scales_b);
      }
      sum({outer_part(left, i, i_end), outer_part(right, j, j_end), sums, stride, {scales, rows, scales_b, columns}},
          loops, options.fast_accumulation);
      finish(sums, stride, epilogue.shifted(i, j, j_end - j), c.rows(i, i_end).columns(j, j_end));
    }
  }
}

}  // namespace fp8::gemm
