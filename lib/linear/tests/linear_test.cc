// Forward and backward of a linear layer in high precision and under every recipe, compared with plain loops in double
// precision. The bits of casts are tested in crate quant and by tests/golden/casts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "layer.h"

namespace fp8::linear::test {
namespace {

// 7 = 448 / 64 = 57344 / 8192: with this largest element every scale is a power of two under every recipe, and integers
// up to 7 are exact in E4M3 and in E5M2.
const std::vector<std::int64_t> kExact{7};

void expect_reference(const Layer& layer, const std::string& what) {
  EXPECT_EQ(values(layer.y), rounded(layer.expected_y(), layer.type)) << what;
  EXPECT_EQ(values(layer.dx), rounded(layer.expected_dx(), layer.type)) << what;
  EXPECT_EQ(values(layer.dw), layer.expected_dw()) << what;
  EXPECT_EQ(values(layer.db), layer.expected_db()) << what;
}

TEST(Linear, HighPrecisionEqualsPlainLoops) {
  for (const DType type : kActivations) {
    Host host;
    Layer layer(type, 5, 7, {{0, 6, false}, {6, 9, false}}, {3});
    layer.run(host.ctx, {});
    expect_reference(layer, std::string(dtype::name_of(type)));
    const gemm::OperandKind kind = type == DType::f32 ? gemm::OperandKind::f32 : gemm::OperandKind::bf16;
    EXPECT_EQ(layer.engine.counts().linear(kind).gemms, 3) << "adjacent parts are one GEMM";
    EXPECT_EQ(layer.engine.counts().linear(gemm::OperandKind::fp8).gemms, 0);
  }
}

TEST(Linear, EveryRecipeEqualsPlainLoopsIfCastsAreExact) {
  for (const DType type : kActivations)
    for (const quant::Recipe& recipe : fp8_recipes()) {
      Host host;
      Layer layer(type, 16, 32, three_parts(true), kExact);
      layer.run(host.ctx, precision_of(recipe));
      expect_reference(layer, std::string(recipe.name) + " " + std::string(dtype::name_of(type)));
    }
}

TEST(Linear, OneCopyOfAWeightEqualsPlainLoopsIfCastsAreExact) {
  for (const DType type : kActivations) {
    Host host;
    Layer layer(type, 16, 32, three_parts(true), kExact);
    layer.run(host.ctx, precision_of(quant::with_single_copy(quant::find_recipe("rowwise"))));
    expect_reference(layer, std::string(dtype::name_of(type)));
    EXPECT_EQ(layer.engine.counts().linear(gemm::OperandKind::fp8).gemms, 9);
  }
}

TEST(Linear, PartsOfBothPrecisions) {
  for (const DType type : kActivations)
    for (const quant::Recipe& recipe : fp8_recipes()) {
      Host host;
      Layer layer(type, 16, 16, {{0, 16, false}, {16, 32, true}, {32, 48, false}, {48, 64, false}}, kExact);
      const Weight w =
          prepare(host.ctx, layer.w.view(), layer.bias.view(), layer.parts, precision_of(recipe), Pass::forward);
      ASSERT_EQ(w.operands.size(), 3u);
      EXPECT_EQ(w.operands[2].part.begin, 32);
      EXPECT_EQ(w.operands[2].part.end, 64);
      EXPECT_FALSE(w.operands[2].part.fp8);
      layer.run(host.ctx, precision_of(recipe));
      expect_reference(layer, std::string(recipe.name) + " " + std::string(dtype::name_of(type)));
      EXPECT_EQ(layer.engine.counts().linear(gemm::OperandKind::fp8).gemms, recipe.fp8_gemms());
    }
}

TEST(Linear, WithoutARecipeNothingIsFp8) {
  Host host;
  Layer layer(DType::bf16, 16, 16, three_parts(true), kLossy);
  layer.run(host.ctx, {});
  EXPECT_EQ(layer.engine.counts().linear(gemm::OperandKind::fp8).gemms, 0);
  EXPECT_EQ(layer.engine.counts().linear(gemm::OperandKind::bf16).gemms, 3);
  EXPECT_EQ(values(layer.dw), layer.expected_dw());
}

TEST(Linear, AccumulatesGradientsOfWeightAndBiasOnly) {
  for (const bool fp8 : {false, true})
    for (const quant::Recipe& recipe : fp8_recipes()) {
      Host host;
      Layer layer(DType::f32, 16, 32, three_parts(fp8), kExact);
      layer.run(host.ctx, precision_of(recipe));
      layer.run(host.ctx, precision_of(recipe), true);
      Values dw = layer.expected_dw(), db = layer.expected_db();
      for (double& v : dw) v *= 2;
      for (double& v : db) v *= 2;
      EXPECT_EQ(values(layer.dw), dw) << recipe.name;
      EXPECT_EQ(values(layer.db), db) << recipe.name;
      EXPECT_EQ(values(layer.dx), layer.expected_dx()) << recipe.name;
    }
}

TEST(Linear, NothingIsComputedForGradientsThatAreNotWanted) {
  const quant::Recipe& recipe = quant::find_recipe("rowwise");
  Host host;
  Layer layer(DType::bf16, 16, 16, {{0, 16, true}}, kExact);
  quant::CastCounts counts;
  const LinearPrecision precision{&recipe, {recipe.power_of_2, &counts}};
  const Weight w = prepare(host.ctx, layer.w.view(), {}, layer.parts, precision, Pass::backward);
  const auto casts_of = [&](const Gradients& gradients) {
    counts = {};
    backward(host.ctx, layer.engine, w, layer.x.view(), layer.dy.view(), gradients);
    return counts.elements;
  };
  EXPECT_EQ(casts_of({layer.dx.view(), {}, {}, false}), layer.m * layer.n) << "dy";
  EXPECT_EQ(layer.engine.counts().linear(gemm::OperandKind::fp8).gemms, 1);
  EXPECT_EQ(values(layer.dx), rounded(layer.expected_dx(), DType::bf16));
  EXPECT_EQ(values(layer.dw), values(filled(DType::f32, {16, 16}, Layer::kUnset)));
  EXPECT_EQ(casts_of({{}, layer.dw.view(), {}, false}), layer.m * layer.n + layer.m * layer.k) << "dy and x";
  EXPECT_EQ(layer.engine.counts().linear(gemm::OperandKind::fp8).gemms, 2);
  EXPECT_EQ(values(layer.dw), layer.expected_dw());
  EXPECT_EQ(values(layer.db), Values(16, 0.0));
}

// Copies the inputs of a part of `whole` to a layer of one part.
void copy_part(Layer& layer, const Layer& whole, const Part& part) {
  const auto copy = [](const Tensor& to, const Values& from) {
    for (std::size_t i = 0; i < from.size(); ++i) set(to.view(), static_cast<std::int64_t>(i), from[i]);
  };
  copy(layer.x, values(whole.x));
  copy(layer.dy, columns(values(whole.dy), whole.n, part.begin, part.end));
  for (std::int64_t i = 0; i < layer.n * layer.k; ++i)
    set(layer.w.view(), i, get(whole.w.view(), part.begin * whole.k + i));
  for (std::int64_t i = 0; i < layer.n; ++i) set(layer.bias.view(), i, get(whole.bias.view(), part.begin + i));
}

Values rows(const Tensor& t, std::int64_t cols, const Part& part) {
  const Values all = values(t);
  return {all.begin() + part.begin * cols, all.begin() + part.end * cols};
}

// Equal bits if the sums are exact; within a bound if they depend on their order.
void expect_same(const Values& a, const Values& b, bool exact) {
  if (exact) {
    EXPECT_EQ(a, b);
    return;
  }
  ASSERT_EQ(a.size(), b.size());
  double largest = 0;
  for (const double v : b) largest = std::fmax(largest, std::fabs(v));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6 * largest) << i;
}

TEST(Linear, PartsAreLayersOfTheirOwn) {
  for (const DType type : kActivations)
    for (const quant::Recipe& recipe : quant::recipes()) {
      SCOPED_TRACE(std::string(recipe.name) + " " + std::string(dtype::name_of(type)));
      Host host;
      // In f32 codes are divided by their scales before the GEMM, which is exact for powers of two only.
      const bool exact = type == DType::bf16 || recipe.power_of_2;
      Layer whole(type, 32, 32, three_parts(true), kLossy);
      whole.run(host.ctx, precision_of(recipe));
      Values dx(static_cast<std::size_t>(whole.m * whole.k), 0.0), slack = dx;
      for (const Part& part : whole.parts) {
        Layer layer(type, whole.m, whole.k, {{0, part.end - part.begin, true}}, kLossy);
        copy_part(layer, whole, part);
        layer.run(host.ctx, precision_of(recipe));
        expect_same(columns(values(whole.y), whole.n, part.begin, part.end), values(layer.y), exact);
        expect_same(rows(whole.dw, whole.k, part), values(layer.dw), exact);
        EXPECT_EQ(rows(whole.db, 1, part), values(layer.db));
        const Values mine = values(layer.dx);
        for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += mine[i], slack[i] += std::fabs(mine[i]);
      }
      // The input gradients of parts are summed in f32 and rounded once; gradients of single layers are each rounded.
      const double ulp = type == DType::f32 ? 0x1p-20 : 0x1p-7;
      const Values sum = values(whole.dx);
      for (std::size_t i = 0; i < dx.size(); ++i) ASSERT_NEAR(sum[i], dx[i], ulp * slack[i]) << i;
    }
}

// Shows that the test above distinguishes one scale for three parts from three scales.
TEST(Linear, OneScaleForThreePartsGivesOtherResults) {
  const quant::Recipe& recipe = quant::find_recipe("tensorwise");
  Host host;
  Layer three(DType::f32, 32, 32, three_parts(true), kLossy), one(DType::f32, 32, 32, three_parts(true), kLossy);
  one.parts = {{0, 64, true}};
  three.run(host.ctx, precision_of(recipe));
  one.run(host.ctx, precision_of(recipe));
  EXPECT_NE(values(three.y), values(one.y));
  EXPECT_NE(values(three.dw), values(one.dw));
  EXPECT_NE(values(three.dx), values(one.dx));
}

// Input gradients of several parts that cancel: summed in bf16, 512 + 1 - 512 would be 0.
TEST(Linear, InputGradientsOfPartsAreSummedInFloats) {
  const quant::Recipe& recipe = quant::find_recipe("rowwise");
  Host host;
  Layer layer(DType::bf16, 16, 16, {{0, 16, true}, {16, 32, true}, {32, 48, true}}, kExact);
  for (const Tensor* t : {&layer.w, &layer.dy})
    for (std::int64_t i = 0; i < t->view().size(); ++i) set(t->view(), i, 0);
  for (std::int64_t p = 0; p < 3; ++p) {  // only the first output of every part has a gradient
    for (std::int64_t l = 0; l < 16; ++l) set(layer.w.view(), 16 * p * 16 + l, p == 1 ? 1 : 16);
    for (std::int64_t i = 0; i < 16; ++i) set(layer.dy.view(), i * 48 + 16 * p, p == 0 ? 32 : p == 1 ? 1 : -32);
  }
  layer.run(host.ctx, precision_of(recipe));
  EXPECT_EQ(values(layer.dx), Values(16 * 16, 1.0));
}

}  // namespace
}  // namespace fp8::linear::test
