// Signal-to-quantization-noise ratios of casts, GEMMs, linears and a SwiGLU feed-forward network under every recipe, on
// normally distributed matrices, against the same computation without FP8 in f32. The floors of FP8 are those of
// torchao's own tests; FP4 has none there.
#include <gtest/gtest.h>

#include <cmath>

#include "fp8/ops/elementwise.h"
#include "layer.h"

namespace fp8::linear::test {
namespace {

// [rows, cols] of f32, normal with a standard deviation.
Tensor normal(std::int64_t rows, std::int64_t cols, std::uint64_t stream, double deviation = 1) {
  Tensor t(DType::f32, {rows, cols});
  for (std::int64_t i = 0; i < rows * cols; i += 2) {
    const auto random = device::philox(stream, static_cast<std::uint64_t>(i), 0);
    const auto pair = device::normal_pair(random[0], random[1]);
    for (std::int64_t j = i; j < std::min(i + 2, rows * cols); ++j)
      t.as<float>()[j] = static_cast<float>(deviation) * pair[static_cast<std::size_t>(j - i)];
  }
  return t;
}

// 20 log10(|exact| / |exact - value|).
double sqnr(const View& exact, const View& value) {
  double signal = 0, noise = 0;
  for (std::int64_t i = 0; i < exact.size(); ++i) {
    const double x = get(exact, i), d = x - get(value, i);
    signal += x * x;
    noise += d * d;
  }
  return 10 * std::log10(signal / noise);
}

// Floors in dB.
struct Floors {
  double cast = 25, gemm = 25, output = 18, gradient = 17, network = 20;
};

// E5M2 has one bit less: a cast to it loses 6 dB more, and is no part of a forward GEMM.
Floors floors_of(const quant::Recipe& recipe) {
  return recipe.fp4() ? Floors{.cast = 19, .gemm = 16, .output = 16, .gradient = 11, .network = 9} : Floors{};
}

TEST(Sqnr, CastsAndForwardGemms) {
  const Tensor x = normal(512, 384, 1), w = normal(256, 384, 2, 0.02), exact(DType::f32, {512, 256});
  gemm::Engine engine;
  Host host(std::size_t{32} << 20);
  engine.matmul(host.ctx, {x.view(), DType::f32, {}}, {w.view().transposed(), DType::f32, {}}, exact.view(), {});
  for (const quant::Recipe& recipe : quant::recipes()) {
    const device::Scope scope(*host.ctx.arena);
    const quant::CastOptions options{.power_of_2 = recipe.power_of_2};
    const View a = quant::dequantize(
        host.ctx, quant::quantize(host.ctx, x.view(), recipe.forward.x, quant::ContractionAxis::last, options));
    const View b = quant::dequantize(
        host.ctx, quant::quantize(host.ctx, w.view(), recipe.forward.w, quant::ContractionAxis::last, options));
    EXPECT_GE(sqnr(x.view(), a), floors_of(recipe).cast) << recipe.name;
    EXPECT_GE(sqnr(w.view(), b), floors_of(recipe).cast) << recipe.name;
    const Tensor y(DType::f32, {512, 256});
    engine.matmul(host.ctx, {a, DType::f32, {}}, {b.transposed(), DType::f32, {}}, y.view(), {});
    EXPECT_GE(sqnr(exact.view(), y.view()), floors_of(recipe).gemm) << recipe.name;
  }
}

// A linear of 256 outputs and 384 inputs, in f32.
struct FloatLinear {
  Tensor x = normal(512, 384, 1), w = normal(256, 384, 2, 0.02), dy = normal(512, 256, 3, 1e-3);
  Tensor y{DType::f32, {512, 256}}, dx{DType::f32, {512, 384}}, dw{DType::f32, {256, 384}};
  gemm::Engine engine;
  void run_forward(const LinearPrecision& precision, const KnownScales& known = {}) {
    Host host(std::size_t{32} << 20);
    const std::vector<Part> parts{{0, 256, precision.recipe != nullptr}};
    forward(host.ctx, engine, prepare(host.ctx, w.view(), {}, parts, precision, Pass::forward, known), x.view(),
            y.view());
  }
  void run(const LinearPrecision& precision) {
    run_forward(precision);
    Host host(std::size_t{32} << 20);
    const std::vector<Part> parts{{0, 256, precision.recipe != nullptr}};
    backward(host.ctx, engine, prepare(host.ctx, w.view(), {}, parts, precision, Pass::backward), x.view(), dy.view(),
             {dx.view(), dw.view(), {}, false});
  }
};

// Factors in (1/2, 1] for more columns than the linear has.
Tensor drawn(std::uint64_t draw) {
  Tensor factors(DType::f32, {400});
  for (std::size_t i = 0; i < 400; ++i)
    factors.as<float>()[i] = std::exp2(-device::unit_interval(device::philox(draw, i, 0)[0]));
  return factors;
}

bool same(const Tensor& a, const Tensor& b) { return values(a) == values(b); }

// The mean of n independent errors of one size is 10 log10(n) dB below that of one.
TEST(ColumnFactors, MakeRoundingsIndependentAndNoLarger) {
  constexpr int kDraws = 8;
  FloatLinear exact;
  exact.run_forward({});
  for (const quant::Recipe& recipe : quant::recipes()) {
    FloatLinear plain, scaled;
    plain.run(precision_of(recipe));
    const double usual = sqnr(exact.y.view(), plain.y.view());
    const Tensor mean(DType::f32, {512, 256});
    for (int draw = 0; draw < kDraws; ++draw) {
      const Tensor factors = drawn(static_cast<std::uint64_t>(draw));
      LinearPrecision precision = precision_of(recipe);
      precision.column_factors = factors.view();
      if (draw == 0) scaled.run(precision);
      if (draw > 0) scaled.run_forward(precision);
      EXPECT_NEAR(sqnr(exact.y.view(), scaled.y.view()), usual, 0.7) << recipe.name;
      for (std::int64_t i = 0; i < mean.view().size(); ++i) mean.as<float>()[i] += scaled.y.as<float>()[i] / kDraws;
    }
    EXPECT_NEAR(sqnr(exact.y.view(), mean.view()), usual + 10 * std::log10(kDraws), recipe.fp4() ? 2 : 1.2)
        << recipe.name;
    EXPECT_TRUE(same(scaled.dx, plain.dx) && same(scaled.dw, plain.dw)) << recipe.name << ": only forward has them";
    const Tensor ones = filled(DType::f32, {400}, 1);
    LinearPrecision precision = precision_of(recipe);
    precision.column_factors = ones.view();
    scaled.run_forward(precision);
    EXPECT_TRUE(same(scaled.y, plain.y)) << recipe.name;
  }
}

// Known scales, as those of delayed scaling, serve values up to their amax: factors above 1 would saturate.
TEST(ColumnFactors, KeepToTheKnownScaleOfTheInput) {
  FloatLinear exact, plain, scaled;
  exact.run_forward({});
  const quant::Recipe& recipe = quant::find_recipe("delayed");
  plain.run_forward(precision_of(recipe));
  Host host(std::size_t{32} << 20);
  Tensor scale(DType::f32, {1}), inverse(DType::f32, {1});
  quant::amax(host.ctx, scaled.x.view(), quant::Granularity::tensor, quant::ContractionAxis::last, scale.view());
  quant::scales_from_amax(host.ctx, scale.view(), {}, scale.view(), inverse.view());
  const Tensor factors = drawn(5), wrong = filled(DType::f32, {1}, 1e-3);
  LinearPrecision precision = precision_of(recipe);
  precision.column_factors = factors.view();
  scaled.run_forward(precision, {{scale.view(), inverse.view(), {}}, {{wrong.view(), wrong.view(), {}}}, {}});
  EXPECT_NEAR(sqnr(exact.y.view(), scaled.y.view()), sqnr(exact.y.view(), plain.y.view()), 0.7);
}

TEST(Sqnr, LinearAndItsGradients) {
  FloatLinear exact;
  exact.run({});
  for (const quant::Recipe& recipe : quant::recipes()) {
    FloatLinear fp8;
    fp8.run(precision_of(recipe));
    const bool mx = recipe.scale_rule == quant::ScaleRule::mx;
    EXPECT_GE(sqnr(exact.y.view(), fp8.y.view()), mx ? 27 : floors_of(recipe).output) << recipe.name;
    EXPECT_GE(sqnr(exact.dx.view(), fp8.dx.view()), mx ? 25 : floors_of(recipe).gradient) << recipe.name;
    EXPECT_GE(sqnr(exact.dw.view(), fp8.dw.view()), floors_of(recipe).gradient) << recipe.name;
    EXPECT_LT(sqnr(exact.y.view(), fp8.y.view()), 40) << recipe.name << ": FP8 was used";
  }
}

// y = (silu(x Wg^T) * (x Wu^T)) Wd^T of 256 tokens, 256 channels and 512 features.
struct Network {
  static constexpr std::int64_t kTokens = 256, kChannels = 256, kFeatures = 512;
  Tensor x = normal(kTokens, kChannels, 1), up = normal(2 * kFeatures, kChannels, 2, 0.05);
  Tensor down = normal(kChannels, kFeatures, 3, 0.05), dy = normal(kTokens, kChannels, 4, 1e-3);
  Tensor both{DType::f32, {kTokens, 2 * kFeatures}}, h{DType::f32, {kTokens, kFeatures}};
  Tensor y{DType::f32, {kTokens, kChannels}};
  Tensor dh{DType::f32, {kTokens, kFeatures}}, dboth{DType::f32, {kTokens, 2 * kFeatures}};
  Tensor dx{DType::f32, {kTokens, kChannels}}, dup{DType::f32, {2 * kFeatures, kChannels}};
  Tensor ddown{DType::f32, {kChannels, kFeatures}};
  gemm::Engine engine;

  void run(const LinearPrecision& precision) {
    Host host(std::size_t{64} << 20);
    const bool fp8 = precision.recipe != nullptr;
    const std::vector<Part> two{{0, kFeatures, fp8}, {kFeatures, 2 * kFeatures, fp8}}, one{{0, kChannels, fp8}};
    const auto weight = [&](const Tensor& w, const std::vector<Part>& parts, Pass pass) {
      return prepare(host.ctx, w.view(), {}, parts, precision, pass);
    };
    forward(host.ctx, engine, weight(up, two, Pass::forward), x.view(), both.view());
    ops::swiglu_forward(host.ctx, both.view(), h.view());
    forward(host.ctx, engine, weight(down, one, Pass::forward), h.view(), y.view());
    backward(host.ctx, engine, weight(down, one, Pass::backward), h.view(), dy.view(),
             {dh.view(), ddown.view(), {}, false});
    ops::swiglu_backward(host.ctx, dh.view(), both.view(), dboth.view());
    backward(host.ctx, engine, weight(up, two, Pass::backward), x.view(), dboth.view(),
             {dx.view(), dup.view(), {}, false});
  }
};

TEST(Sqnr, SwigluNetworkAndItsGradients) {
  Network exact;
  exact.run({});
  for (const quant::Recipe& recipe : quant::recipes()) {
    Network fp8;
    fp8.run(precision_of(recipe));
    for (const auto& [name, want, got] : {std::tuple{"y", &exact.y, &fp8.y},
                                          {"dx", &exact.dx, &fp8.dx},
                                          {"dup", &exact.dup, &fp8.dup},
                                          {"ddown", &exact.ddown, &fp8.ddown}})
      EXPECT_GT(sqnr(want->view(), got->view()), floors_of(recipe).network) << recipe.name << " " << name;
  }
}

}  // namespace
}  // namespace fp8::linear::test
