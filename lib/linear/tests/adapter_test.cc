// Adapters: y, dx and the gradients of a and b against plain loops, bit for bit, with and without dropout; beside FP8
// parts; and that a frozen weight has no wgrad.
#include <gtest/gtest.h>

#include <cmath>

#include "layer.h"

namespace fp8::linear::test {
namespace {

constexpr double kScaling = 0.5;

// Adapters of small integers for parts of a layer, and their gradients.
struct Adapters {
  Adapters(const Layer& layer, const std::vector<Part>& of) : scaling(filled(DType::f32, {1}, kScaling)) {
    std::int64_t rows = 0;
    for (const Part& part : of) {
      const std::int64_t n = part.end - part.begin;
      a.emplace_back(layer.type, tensor::Shape{kRank, layer.k});
      b.emplace_back(layer.type, tensor::Shape{n, kRank});
      fill_integers(a.back().view(), 2, 30 + a.size());
      fill_integers(b.back().view(), 2, 40 + b.size());
      list.push_back({part, a.back().view(), b.back().view(), scaling.view()});
      rows += n;
    }
    da = Tensor(DType::f32, {static_cast<std::int64_t>(of.size()) * kRank, layer.k});
    db = Tensor(DType::f32, {rows, kRank});
  }
  Tensor scaling, da, db;
  std::vector<Tensor> a, b;
  std::vector<Adapter> list;
};

// x with elements left out, as the op does it.
Values dropped(const Layer& layer, const ops::Dropout& drop) {
  if (drop.probability == 0) return values(layer.x);
  const Tensor out(layer.type, {layer.m, layer.k});
  ops::dropout(Host().ctx, layer.x.view(), drop, out.view());
  return values(out);
}

// Row-major [rows, inner] times the transpose of [columns, inner].
Values product(const Values& a, const Values& b, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  Values out;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < inner; ++l)
        sum += a[static_cast<std::size_t>(i * inner + l)] * b[static_cast<std::size_t>(j * inner + l)];
      out.push_back(sum);
    }
  return out;
}

Values transposed(const Values& v, std::int64_t rows, std::int64_t cols) {
  Values out;
  for (std::int64_t j = 0; j < cols; ++j)
    for (std::int64_t i = 0; i < rows; ++i) out.push_back(v[static_cast<std::size_t>(i * cols + j)]);
  return out;
}

Values times(Values v, double factor) {
  for (double& e : v) e *= factor;
  return v;
}

void run(Layer& layer, const Host& host, const LinearPrecision& precision, Adapters& adapters, bool accumulate) {
  Weight forward_weight = prepare(host.ctx, layer.w.view(), layer.bias.view(), layer.parts, precision, Pass::forward),
         backward_weight = prepare(host.ctx, layer.w.view(), layer.bias.view(), layer.parts, precision, Pass::backward);
  forward_weight.adapters = backward_weight.adapters = adapters.list;
  forward(host.ctx, layer.engine, forward_weight, layer.x.view(), layer.y.view());
  backward(host.ctx, layer.engine, backward_weight, layer.x.view(), layer.dy.view(),
           {layer.dx.view(), {}, {}, accumulate, adapters.da.view(), adapters.db.view()});
}

// Everything in f32, where these integers and their sums are exact.
void check_exact(const ops::Dropout& drop, bool accumulate) {
  const Host host;
  Layer layer(DType::f32, 6, 24, three_parts(false), {3});
  const std::vector<Part> with{layer.parts[0], layer.parts[2]};
  Adapters adapters(layer, with);
  for (Adapter& adapter : adapters.list) adapter.dropout = drop;
  for (const Tensor& t : {std::cref(adapters.da), std::cref(adapters.db)})
    for (std::int64_t i = 0; i < t.view().size(); ++i) set(t.view(), i, 7);
  run(layer, host, {}, adapters, accumulate);

  const std::int64_t m = layer.m, k = layer.k, n = layer.n;
  const Values x = dropped(layer, drop);
  Values y = layer.expected_y(), dx = layer.expected_dx(), da, db;
  for (std::size_t p = 0; p < with.size(); ++p) {
    const auto [begin, end] = std::pair{with[p].begin, with[p].end};
    const std::int64_t width = end - begin;
    const Values a = values(adapters.a[p]), b = values(adapters.b[p]);
    const Values t = times(product(x, a, m, kRank, k), kScaling), delta = product(t, b, m, width, kRank);
    const Values dy = columns(values(layer.dy), n, begin, end);
    const Values u = times(product(dy, transposed(b, width, kRank), m, kRank, width), kScaling);
    const Values through = product(u, transposed(a, kRank, k), m, k, kRank);
    for (std::int64_t i = 0; i < m * width; ++i)
      y[static_cast<std::size_t>(i / width * n + begin + i % width)] += delta[static_cast<std::size_t>(i)];
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const double kept = drop.probability == 0 ? 1 : x[i] == 0 ? 0 : 1 / (1 - static_cast<double>(drop.probability));
      if (drop.probability == 0 || get(layer.x.view(), static_cast<std::int64_t>(i)) != 0) dx[i] += kept * through[i];
    }
    for (const double v : product(transposed(u, m, kRank), transposed(x, m, k), kRank, k, m)) da.push_back(v);
    for (const double v : product(transposed(dy, m, width), transposed(t, m, kRank), width, kRank, m)) db.push_back(v);
  }
  if (accumulate)
    for (Values* v : {&da, &db})
      for (double& e : *v) e += 7;
  EXPECT_EQ(values(layer.y), y);
  EXPECT_EQ(values(adapters.da), da);
  EXPECT_EQ(values(adapters.db), db);
  const Values found = values(layer.dx);
  for (std::size_t i = 0; i < dx.size(); ++i)
    if (drop.probability == 0 || get(layer.x.view(), static_cast<std::int64_t>(i)) != 0) {
      EXPECT_EQ(found[i], dx[i]) << i;
    }
}

TEST(Adapter, IsExactInF32) {
  check_exact({}, false);
  check_exact({}, true);
}

TEST(Adapter, DropsTheSameInputsInForwardAndBackward) { check_exact({0.5f, 3, 9, 100}, false); }

// The step's global batch in one piece or in two, and another stream.
TEST(Adapter, DropoutDependsOnTheRowOfTheGlobalBatch) {
  const Host host;
  Layer layer(DType::bf16, 8, 22, three_parts(false), {3});
  const ops::Dropout drop{0.25f, 3, 9, 0};
  const Tensor whole(DType::bf16, {8, 22}), parts(DType::bf16, {8, 22});
  ops::dropout(host.ctx, layer.x.view(), drop, whole.view());
  for (const std::int64_t begin : {0, 5}) {
    const std::int64_t end = begin == 0 ? 5 : 8;
    ops::Dropout part = drop;
    part.first_row = begin;
    ops::dropout(host.ctx, layer.x.view().rows(begin, end), part, parts.view().rows(begin, end));
  }
  EXPECT_EQ(values(parts), values(whole));
  ops::Dropout other = drop;
  other.stream = 10;
  ops::dropout(host.ctx, layer.x.view(), other, parts.view());
  EXPECT_NE(values(parts), values(whole));
}

TEST(Adapter, LeavesOutAShareOfTheInputs) {
  const Host host;
  const Tensor ones = filled(DType::f32, {100, 1000}, 1), out(DType::f32, {100, 1000});
  ops::dropout(host.ctx, ones.view(), {0.3f, 1, 2, 0}, out.view());
  int left_out = 0;
  for (const double v : values(out)) {
    left_out += v == 0 ? 1 : 0;
    if (v != 0) {
      EXPECT_FLOAT_EQ(static_cast<float>(v), 1 / 0.7f);
    }
  }
  EXPECT_NEAR(left_out, 30000, 700);
}

// Beside FP8 parts the adapter computes in the precision of the activations, and wgrad of the weight never runs.
TEST(Adapter, IsBesideFp8Parts) {
  const quant::Recipe& recipe = quant::find_recipe("tensorwise");
  const Host host;
  Layer layer(DType::bf16, 16, 32, three_parts(true), {1}), plain(DType::bf16, 16, 32, three_parts(true), {1});
  Adapters adapters(layer, layer.parts);
  for (const Adapter& adapter : adapters.list)
    for (std::int64_t i = 0; i < adapter.b.size(); ++i) set(adapter.b, i, 0);
  const LinearPrecision precision = precision_of(recipe);
  run(layer, host, precision, adapters, false);
  plain.run(host.ctx, precision);
  EXPECT_EQ(values(layer.y), values(plain.y));
  EXPECT_EQ(values(layer.dx), values(plain.dx));
  const gemm::Counts& counts = layer.engine.counts();
  EXPECT_EQ(counts.linear(gemm::OperandKind::fp8).gemms, 6);    // of 9: no wgrad
  EXPECT_EQ(counts.linear(gemm::OperandKind::bf16).gemms, 21);  // seven for each adapter
}

}  // namespace
}  // namespace fp8::linear::test
