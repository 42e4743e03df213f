/// Layers of small integers for the tests of this crate, and plain loops in double precision for the expected results.
/// Products and sums of the integers, and of their codes, are exact in f32 in any order, so results are compared bit
/// for bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/device/philox.h"
#include "fp8/dtype/element.h"
#include "fp8/linear/linear.h"
#include "fp8/quant/recipe.h"

namespace fp8::linear::test {

using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;

/// Types of activations.
inline constexpr DType kActivations[] = {DType::f32, DType::bf16};

/// Bounds of integers of five bits: E4M3 loses some; the codes are integers, and their sums exact.
inline const std::vector<std::int64_t> kLossy{31, 13, 5};

/// Rank of adapters.
inline constexpr std::int64_t kRank = 4;

/// A matrix or vector of doubles, row by row.
using Values = std::vector<double>;

/// Element `i` of contiguous memory.
inline double get(const View& v, std::int64_t i) {
  return static_cast<double>(v.dtype == DType::f32 ? v.as<float>()[i] : dtype::to_float(v.as<Bf16>()[i]));
}

/// Sets element `i` of contiguous memory, rounded.
inline void set(const View& v, std::int64_t i, double value) {
  if (v.dtype == DType::f32) v.as<float>()[i] = static_cast<float>(value);
  if (v.dtype == DType::bf16) v.as<Bf16>()[i] = dtype::to_bf16(static_cast<float>(value));
}

/// All elements of contiguous memory.
inline Values values(const Tensor& t) {
  Values out;
  for (std::int64_t i = 0; i < t.view().size(); ++i) out.push_back(get(t.view(), i));
  return out;
}

/// Values rounded to a format.
inline Values rounded(Values exact, DType type) {
  for (double& v : exact) {
    const auto f = static_cast<float>(v);
    v = static_cast<double>(type == DType::f32 ? f : dtype::to_float(dtype::to_bf16(f)));
  }
  return exact;
}

/// Columns [begin, end) of a matrix of `cols` columns.
inline Values columns(const Values& v, std::int64_t cols, std::int64_t begin, std::int64_t end) {
  Values out;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const auto c = static_cast<std::int64_t>(i) % cols;
    if (c >= begin && c < end) out.push_back(v[i]);
  }
  return out;
}

/// A tensor filled with one value.
inline Tensor filled(DType type, tensor::Shape shape, double value) {
  Tensor t(type, shape);
  for (std::int64_t i = 0; i < t.view().size(); ++i) set(t.view(), i, value);
  return t;
}

/// Integers from -bound to bound, the first of them `bound` itself.
inline void fill_integers(const View& v, std::int64_t bound, std::uint64_t seed) {
  for (std::int64_t i = 0; i < v.size(); ++i) {
    const auto word = device::philox(seed, static_cast<std::uint64_t>(i), 0)[0];
    set(v, i, static_cast<double>(static_cast<std::int64_t>(word % static_cast<std::uint64_t>(2 * bound + 1)) - bound));
  }
  set(v, 0, static_cast<double>(bound));
}

/// A layer, its input, the gradient of its output, and its results. The elements of part p of the weight, and of its
/// columns of dy, are at most bounds[p] in magnitude.
struct Layer {
  Layer(DType activation, std::int64_t rows, std::int64_t in, std::vector<Part> of,
        const std::vector<std::int64_t>& bounds)
      : type(activation),
        m(rows),
        k(in),
        n(of.back().end),
        parts(std::move(of)),
        x(type, {m, k}),
        w(type, {n, k}),
        bias(type, {n}),
        dy(type, {m, n}),
        y(filled(type, {m, n}, kUnset)),
        dx(filled(type, {m, k}, kUnset)),
        dw(filled(DType::f32, {n, k}, kUnset)),
        db(DType::f32, {n}) {
    fill_integers(x.view(), bounds.front(), 1);
    fill_integers(bias.view(), 7, 2);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      fill_integers(w.view().rows(parts[p].begin, parts[p].end), bounds[p % bounds.size()], 10 + p);
      const Tensor block(type, {m, parts[p].end - parts[p].begin});
      fill_integers(block.view(), bounds[p % bounds.size()], 20 + p);
      const std::int64_t width = block.view().shape[1];
      for (std::int64_t i = 0; i < m * width; ++i)
        set(dy.view(), i / width * n + parts[p].begin + i % width, get(block.view(), i));
    }
  }

  /// y = x w^T + bias.
  Values expected_y() const {
    Values out;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = get(bias.view(), j);
        for (std::int64_t l = 0; l < k; ++l) sum += get(x.view(), i * k + l) * get(w.view(), j * k + l);
        out.push_back(sum);
      }
    return out;
  }
  /// dx = dy w.
  Values expected_dx() const {
    Values out;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t l = 0; l < k; ++l) {
        double sum = 0;
        for (std::int64_t j = 0; j < n; ++j) sum += get(dy.view(), i * n + j) * get(w.view(), j * k + l);
        out.push_back(sum);
      }
    return out;
  }
  /// dw = dy^T x.
  Values expected_dw() const {
    Values out;
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t l = 0; l < k; ++l) {
        double sum = 0;
        for (std::int64_t i = 0; i < m; ++i) sum += get(dy.view(), i * n + j) * get(x.view(), i * k + l);
        out.push_back(sum);
      }
    return out;
  }
  /// db = column sums of dy.
  Values expected_db() const {
    Values out(static_cast<std::size_t>(n), 0.0);
    for (std::int64_t i = 0; i < m * n; ++i) out[static_cast<std::size_t>(i % n)] += get(dy.view(), i);
    return out;
  }

  /// Forward and backward with weights prepared from the matrix.
  void run(const Context& ctx, const LinearPrecision& precision, bool accumulate = false) {
    run(ctx, prepare(ctx, w.view(), bias.view(), parts, precision, Pass::forward),
        prepare(ctx, w.view(), bias.view(), parts, precision, Pass::backward), accumulate);
  }
  /// Forward and backward with given weights.
  void run(const Context& ctx, const Weight& for_forward, const Weight& for_backward, bool accumulate = false,
           const ForwardOptions& of_x = {}, const KnownAmaxes& amaxes = {}) {
    forward(ctx, engine, for_forward, x.view(), y.view(), of_x);
    backward(ctx, engine, for_backward, x.view(), dy.view(), {dx.view(), dw.view(), db.view(), accumulate}, amaxes);
  }

  static constexpr double kUnset = -12288;  ///< initial value of results

  DType type;               ///< type of the activations
  std::int64_t m, k, n;     ///< rows of x, columns of x, rows of w
  std::vector<Part> parts;  ///< parts of w
  Tensor x, w, bias, dy;    ///< inputs
  Tensor y, dx, dw, db;     ///< results; db begins at zero
  gemm::Engine engine;      ///< counts GEMMs
};

/// A host context with an arena.
class Host {
 public:
  /// With an arena of `bytes`.
  explicit Host(std::size_t bytes = std::size_t{1} << 20) : arena_(bytes, device::DeviceType::host) {
    ctx.arena = &arena_;
  }
  Context ctx;  ///< context of the host, with the arena

 private:
  device::Arena arena_;
};

/// A recipe with its default scales.
inline LinearPrecision precision_of(const quant::Recipe& recipe) { return {&recipe, {recipe.power_of_2, nullptr}}; }

/// The recipes of FP8, whose casts of small integers are exact. Those of FP4 are in quant/tests/fp4_test.cc.
inline std::vector<quant::Recipe> fp8_recipes() {
  std::vector<quant::Recipe> fp8;
  for (const quant::Recipe& recipe : quant::recipes())
    if (!recipe.fp4()) fp8.push_back(recipe);
  return fp8;
}

/// Kind of the operands of a recipe's GEMMs.
inline gemm::OperandKind kind_of(const quant::Recipe& recipe) {
  return recipe.fp4() ? gemm::OperandKind::fp4 : gemm::OperandKind::fp8;
}

/// Parts of different widths, like q, k and v, all FP8 or none.
inline std::vector<Part> three_parts(bool fp8) { return {{0, 32, fp8}, {32, 48, fp8}, {48, 64, fp8}}; }

}  // namespace fp8::linear::test
