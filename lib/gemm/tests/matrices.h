/// Matrices of small integers for the tests of matmul, and plain loops for the expected results. Sums of small integers
/// are exact in f32 in any order, so results are compared bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fp8/device/philox.h"
#include "fp8/gemm/gemm.h"

namespace fp8::gemm::testing {

using dtype::Bf16;
using tensor::Tensor;

/// Element [i, j] of an f32 or bf16 matrix.
inline float get(const View& v, std::int64_t i, std::int64_t j) {
  const std::int64_t at = i * v.stride[0] + j * v.stride[1];
  return v.dtype == DType::f32 ? v.as<float>()[at] : to_float(v.as<Bf16>()[at]);
}

/// Sets element [i, j], which must be exact in v's format.
inline void set(const View& v, std::int64_t i, std::int64_t j, float value) {
  const std::int64_t at = i * v.stride[0] + j * v.stride[1];
  if (v.dtype == DType::f32) v.as<float>()[at] = value;
  if (v.dtype == DType::bf16) v.as<Bf16>()[at] = dtype::to_bf16(value);
}

/// Layout of a matrix in memory.
enum class Layout { rows, transposed, wide, transposed_wide };
/// All of them.
inline constexpr Layout kLayouts[] = {Layout::rows, Layout::transposed, Layout::wide, Layout::transposed_wide};

/// Sizes of a GEMM.
struct Size {
  std::int64_t m, n, k;
};

/// A matrix and the memory around it.
struct Matrix {
  Tensor memory;  ///< allocated memory
  View view;      ///< [rows, columns], in the layout
};

/// [rows, columns] of integers from -3 to 3, different for each seed.
inline Matrix integers(DType type, std::int64_t rows, std::int64_t columns, Layout layout, std::uint64_t seed) {
  const bool turned = layout == Layout::transposed || layout == Layout::transposed_wide;
  const std::int64_t pad = layout == Layout::wide || layout == Layout::transposed_wide ? 5 : 0;
  const std::int64_t r = turned ? columns : rows, c = turned ? rows : columns;
  Matrix m{Tensor(type, {r, c + 2 * pad}), {}};
  const View all = m.memory.view();
  for (std::int64_t i = 0; i < r; ++i) {
    for (std::int64_t j = 0; j < c + 2 * pad; ++j) {
      const auto word = device::philox(seed, static_cast<std::uint64_t>(i * (c + 2 * pad) + j), 0)[0];
      set(all, i, j, static_cast<float>(word % 7) - 3.0f);
    }
  }
  m.view = all.columns(pad, pad + c);
  if (turned) m.view = m.view.transposed();
  return m;
}

/// `n` positive floats that are not powers of two.
inline Tensor odd_scales(std::int64_t n, float first) {
  Tensor t(DType::f32, {n});
  for (std::int64_t i = 0; i < n; ++i) t.as<float>()[i] = first / static_cast<float>(3 + i % 11);
  return t;
}

/// An operand without scales, in the format of its storage.
inline Operand plain(const View& v) { return {v, v.dtype, {}}; }

/// The expected C: sums times inverse scales one after the other, plus bias, plus C, each rounded to f32, then to C's
/// format.
inline std::vector<float> expected(const Operand& a, const Operand& b, const View& c_before,
                                   const MatmulOptions& options) {
  const std::int64_t m = a.matrix.shape[0], n = b.matrix.shape[1], k = a.matrix.shape[1];
  const auto scale = [](const View& s, std::int64_t i) { return s.as<float>()[s.size() == 1 ? 0 : i]; };
  std::vector<float> left(static_cast<std::size_t>(m * k)), right(static_cast<std::size_t>(k * n)), out;
  for (std::int64_t i = 0; i < m * k; ++i) left[static_cast<std::size_t>(i)] = get(a.matrix, i / k, i % k);
  for (std::int64_t i = 0; i < k * n; ++i) right[static_cast<std::size_t>(i)] = get(b.matrix, i / n, i % n);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += left[static_cast<std::size_t>(i * k + l)] * right[static_cast<std::size_t>(l * n + j)];
      }
      if (!a.inverse_scale.empty()) sum *= scale(a.inverse_scale, i);
      if (!b.inverse_scale.empty()) sum *= scale(b.inverse_scale, j);
      if (!options.bias.empty()) sum += get(options.bias.reshaped({1, n}), 0, j);
      if (options.accumulate) sum += get(c_before, i, j);
      out.push_back(c_before.dtype == DType::bf16 ? to_float(dtype::to_bf16(sum)) : sum);
    }
  }
  return out;
}

/// Index of the first element of `c` that differs from `want`, or nothing.
inline std::optional<std::size_t> first_difference(const View& c, const std::vector<float>& want) {
  for (std::int64_t i = 0; i < c.shape[0]; ++i) {
    for (std::int64_t j = 0; j < c.shape[1]; ++j) {
      const auto at = static_cast<std::size_t>(i * c.shape[1] + j);
      if (get(c, i, j) != want[at]) return at;
    }
  }
  return std::nullopt;
}

}  // namespace fp8::gemm::testing
