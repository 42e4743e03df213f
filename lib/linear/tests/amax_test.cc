// Amaxes of activations that the caller has: the results have the bits of a layer that computes them, and the amaxes
// given are the ones used.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fp8/base/error.h"
#include "layer.h"

namespace fp8::linear::test {
namespace {

// Weights of a layer for both passes, and the amaxes of its x and of each part's columns of dy.
struct Prepared {
  Prepared(Host& host, const Layer& layer, const LinearPrecision& precision)
      : forward(prepare(host.ctx, layer.w.view(), layer.bias.view(), layer.parts, precision, Pass::forward)),
        backward(prepare(host.ctx, layer.w.view(), layer.bias.view(), layer.parts, precision, Pass::backward)),
        x(DType::f32, {1}),
        dy(DType::f32, {static_cast<std::int64_t>(layer.parts.size())}) {
    const bool skip_nan = needed_amaxes(forward).skip_nan;
    const auto amax = [&](const View& of, const View& to) {
      quant::amax(host.ctx, of, quant::Granularity::tensor, quant::ContractionAxis::last, to, skip_nan);
    };
    amax(layer.x.view(), x.view());
    for (std::size_t p = 0; p < layer.parts.size(); ++p) {
      const auto at = static_cast<std::int64_t>(p);
      amax(layer.dy.view().columns(layer.parts[p].begin, layer.parts[p].end), dy.view().rows(at, at + 1));
    }
  }
  Weight forward, backward;
  Tensor x, dy;
};

void expect_same_results(const Layer& a, const Layer& b) {
  EXPECT_EQ(values(a.y), values(b.y));
  EXPECT_EQ(values(a.dx), values(b.dx));
  EXPECT_EQ(values(a.dw), values(b.dw));
}

TEST(KnownAmaxes, GiveTheSameBitsUnderEveryRecipe) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const quant::Recipe& recipe : quant::recipes())
      for (const bool known : {false, true}) {
        SCOPED_TRACE(recipe.name);
        Host host;
        Layer plain(type, 24, 32, three_parts(true), kLossy), layer(type, 24, 32, three_parts(true), kLossy);
        plain.run(host.ctx, precision_of(recipe));
        const Prepared p(host, layer, precision_of(recipe));
        const Tensor stored(DType::f32, {1});
        layer.run(host.ctx, p.forward, p.backward, false, {known ? p.x.view() : stored.view(), known},
                  {known ? p.x.view() : stored.view(), p.dy.view()});
        expect_same_results(layer, plain);
        EXPECT_EQ(get(stored.view(), 0), !known && needed_amaxes(p.forward).x ? get(p.x.view(), 0) : 0.0);
      }
}

// Shows that the amaxes given are used, each by the part that it is of.
TEST(KnownAmaxes, AreUsed) {
  const quant::Recipe& recipe = quant::find_recipe("current");
  Host host;
  Layer plain(DType::bf16, 24, 32, three_parts(true), kLossy);
  plain.run(host.ctx, precision_of(recipe));
  const Tensor large = filled(DType::f32, {1}, 29);  // scale 448 / 29: the lossy codes become others
  {
    Layer layer(DType::bf16, 24, 32, three_parts(true), kLossy);
    const Prepared p(host, layer, precision_of(recipe));
    layer.run(host.ctx, p.forward, p.backward, false, {large.view(), true}, {p.x.view(), p.dy.view()});
    EXPECT_NE(values(layer.y), values(plain.y));
    EXPECT_EQ(values(layer.dx), values(plain.dx));
    EXPECT_EQ(values(layer.dw), values(plain.dw));
  }
  Layer layer(DType::bf16, 24, 32, three_parts(true), kLossy);
  const Prepared p(host, layer, precision_of(recipe));
  set(p.dy.view(), 1, 29);
  layer.run(host.ctx, p.forward, p.backward, false, {p.x.view(), true}, {p.x.view(), p.dy.view()});
  const auto rows_of = [&](const Layer& of, std::int64_t begin, std::int64_t end) {
    const Values all = values(of.dw);
    return Values(all.begin() + begin * of.k, all.begin() + end * of.k);
  };
  EXPECT_EQ(values(layer.y), values(plain.y));
  EXPECT_EQ(rows_of(layer, 0, 32), rows_of(plain, 0, 32));
  EXPECT_NE(rows_of(layer, 32, 48), rows_of(plain, 32, 48));
  EXPECT_EQ(rows_of(layer, 48, 64), rows_of(plain, 48, 64));
  EXPECT_NE(values(layer.dx), values(plain.dx));
}

TEST(KnownAmaxes, UseOfRecipes) {
  const auto use_of = [](std::string_view recipe, const quant::GemmSet& gemms, bool fp8 = true) {
    Host host;
    const Layer layer(DType::bf16, 16, 16, {{0, 16, false}, {16, 32, fp8, gemms}}, kLossy);
    const LinearPrecision precision = precision_of(quant::find_recipe(recipe));
    return needed_amaxes(prepare(host.ctx, layer.w.view(), {}, layer.parts, precision, Pass::forward));
  };
  for (const std::string_view recipe : {"tensorwise", "current"}) {
    const NeededAmaxes all = use_of(recipe, {});
    EXPECT_TRUE(all.x && all.dy);
    EXPECT_EQ(all.skip_nan, recipe == "current");
    const NeededAmaxes dgrad = use_of(recipe, {false, true, false}), forward = use_of(recipe, {true, false, false});
    EXPECT_TRUE(!dgrad.x && dgrad.dy);
    EXPECT_TRUE(forward.x && !forward.dy);
    EXPECT_TRUE(!use_of(recipe, {}, false).x && !use_of(recipe, {}, false).dy);
  }
  for (const std::string_view recipe : {"rowwise", "rowwise_with_gw_hp", "blockwise", "mxfp8"})
    EXPECT_TRUE(!use_of(recipe, {}).x && !use_of(recipe, {}).dy) << recipe;
}

// A known scale needs no amax.
TEST(KnownAmaxes, AreNotNeededByDelayedScaling) {
  Host host;
  const Layer layer(DType::bf16, 16, 16, {{0, 16, true}}, kLossy);
  const Tensor one = filled(DType::f32, {1}, 1);
  const quant::KnownScale known{one.view(), one.view(), {}};
  const Weight w = prepare(host.ctx, layer.w.view(), {}, layer.parts, precision_of(quant::find_recipe("delayed")),
                           Pass::forward, {known, {known}, {known}});
  EXPECT_FALSE(needed_amaxes(w).x || needed_amaxes(w).dy);
}

// The amax by the rule of the recipe: with NaN under tensorwise, so that the step is non-finite; without under current.
TEST(KnownAmaxes, OfElementsWithNan) {
  for (const std::string_view name : {"tensorwise", "current"}) {
    Host host;
    Layer plain(DType::bf16, 16, 16, {{0, 16, true}}, kLossy), layer(DType::bf16, 16, 16, {{0, 16, true}}, kLossy);
    for (const Layer* l : {&plain, &layer}) set(l->x.view(), 5, std::numeric_limits<double>::quiet_NaN());
    const LinearPrecision precision = precision_of(quant::find_recipe(name));
    plain.run(host.ctx, precision);
    const Prepared p(host, layer, precision);
    layer.run(host.ctx, p.forward, p.backward, false, {p.x.view(), true}, {p.x.view(), p.dy.view()});
    EXPECT_EQ(std::isnan(get(p.x.view(), 0)), name == "tensorwise");
    for (std::int64_t i = 0; i < layer.m * layer.n; ++i) {
      const double a = get(layer.y.view(), i), b = get(plain.y.view(), i);
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << i;
    }
  }
}

TEST(KnownAmaxes, TooFewOfDyAreAnError) {
  Host host;
  Layer layer(DType::bf16, 16, 32, three_parts(true), kLossy);
  const Prepared p(host, layer, precision_of(quant::find_recipe("current")));
  EXPECT_THROW(layer.run(host.ctx, p.forward, p.backward, false, {}, {{}, p.dy.view().rows(0, 2)}), Error);
}

}  // namespace
}  // namespace fp8::linear::test
