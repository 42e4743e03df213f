// Planned FP8 GEMMs, memory and casts of a linear layer compared with a run; weights prepared from gathered codes.
#include <gtest/gtest.h>

#include "fp8/quant/fold.h"
#include "fp8/quant/scale.h"
#include "layer.h"

namespace fp8::linear::test {
namespace {

// Mixed precisions, all FP8, none.
std::vector<std::vector<Part>> splits() {
  return {{{0, 32, true}, {32, 48, false}, {48, 64, true}}, three_parts(true), three_parts(false)};
}

TEST(Planned, EqualsTheCountsOfTheEngine) {
  for (const quant::Recipe& recipe : quant::recipes())
    for (const std::vector<Part>& parts : splits()) {
      Host host;
      Layer layer(DType::bf16, 24, 32, parts, kLossy);
      const LinearPrecision precision = precision_of(recipe);
      const Weight w = prepare(host.ctx, layer.w.view(), {}, parts, precision, Pass::forward);
      forward(host.ctx, layer.engine, w, layer.x.view(), layer.y.view());
      const gemm::Count once = planned_fp8(parts, layer.k, recipe, layer.m, false);
      EXPECT_EQ(layer.engine.counts().linear(kind_of(recipe)).gemms, once.gemms) << recipe.name;
      EXPECT_EQ(layer.engine.counts().linear(kind_of(recipe)).flops, once.flops) << recipe.name;
      const gemm::Counts before = layer.engine.counts();
      layer.run(host.ctx, precision);
      const gemm::Count both = planned_fp8(parts, layer.k, recipe, layer.m, true);
      EXPECT_EQ((layer.engine.counts() - before).linear(kind_of(recipe)).gemms, both.gemms) << recipe.name;
      EXPECT_EQ((layer.engine.counts() - before).linear(kind_of(recipe)).flops, both.flops) << recipe.name;
    }
}

// Each set of GEMMs: counts, and results where casts are exact.
TEST(Planned, SomeGemmsInFp8) {
  for (const char* name : {"tensorwise", "rowwise", "rowwise_with_gw_hp"})
    for (int bits = 1; bits < 8; ++bits) {
      const quant::Recipe& recipe = quant::find_recipe(name);
      std::vector<Part> parts = three_parts(true);
      parts[0].gemms = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
      parts[2].gemms = {true, false, true};
      Host host;
      Layer layer(DType::bf16, 16, 32, parts, {7});
      layer.run(host.ctx, precision_of(recipe));
      EXPECT_EQ(values(layer.y), rounded(layer.expected_y(), layer.type)) << name << bits;
      EXPECT_EQ(values(layer.dx), rounded(layer.expected_dx(), layer.type)) << name << bits;
      EXPECT_EQ(values(layer.dw), layer.expected_dw()) << name << bits;
      const gemm::Count planned = planned_fp8(parts, layer.k, recipe, layer.m, true);
      EXPECT_EQ(layer.engine.counts().linear(gemm::OperandKind::fp8).gemms, planned.gemms) << name << bits;
      EXPECT_EQ(layer.engine.counts().linear(gemm::OperandKind::fp8).flops, planned.flops) << name << bits;
      EXPECT_EQ(planned.gemms,
                recipe.fp8_gemms(parts[0].gemms) + recipe.fp8_gemms() + recipe.fp8_gemms(parts[2].gemms));
    }
}

TEST(Planned, Figures) {
  const std::vector<Part> parts = splits()[0];  // 48 rows of 64 in two FP8 parts
  const gemm::Count forward_only = planned_fp8(parts, 32, quant::find_recipe("rowwise_with_gw_hp"), 24, false);
  EXPECT_EQ(forward_only.gemms, 2);
  EXPECT_EQ(forward_only.flops, 2.0 * 24 * 32 * 48);
  const gemm::Count without_wgrad = planned_fp8(parts, 32, quant::find_recipe("rowwise_with_gw_hp"), 24, true);
  EXPECT_EQ(without_wgrad.gemms, 4);
  EXPECT_EQ(without_wgrad.flops, 2 * 2.0 * 24 * 32 * 48);
  EXPECT_EQ(planned_fp8(parts, 32, quant::find_recipe("tensorwise"), 24, true).gemms, 6);
}

TEST(Casts, CountsOfEveryRecipe) {
  for (const quant::Recipe& recipe : quant::recipes()) {
    Host host;
    Layer layer(DType::bf16, 32, 32, three_parts(true), kLossy);  // of tokens, Hadamard transforms have sixteens
    quant::CastCounts counts;
    layer.run(host.ctx, {&recipe, {recipe.power_of_2, &counts}});
    const std::int64_t of_x = layer.m * layer.k, of_w = layer.n * layer.k, of_dy = layer.m * layer.n;
    const bool wgrad = recipe.fp8_gemms() == 3;
    const quant::CastPair dy{recipe.dgrad.dy, recipe.wgrad.dy};
    const std::int64_t x_casts = wgrad ? 2 : 1, dy_casts = wgrad && !dy.shared() ? 2 : 1;
    EXPECT_EQ(counts.elements, x_casts * of_x + 2 * of_w + dy_casts * of_dy) << recipe.name;
    EXPECT_EQ(counts.saturated, 0) << recipe.name;
  }
}

// FP8 codes and inverse scales of a layer's parts, as an FP8 all-gather delivers them.
struct GatheredCodes {
  GatheredCodes(const Context& ctx, const Layer& layer, DType format, bool power_of_2)
      : bytes(DType::u8, {layer.n, layer.k}),
        scales(DType::f32, {static_cast<std::int64_t>(layer.parts.size())}),
        inverse(DType::f32, {static_cast<std::int64_t>(layer.parts.size())}) {
    for (std::size_t p = 0; p < layer.parts.size(); ++p) {
      const Part& part = layer.parts[p];
      const View rows = layer.w.view().rows(part.begin, part.end);
      const Tensor amax(DType::f32, {1});
      quant::amax(ctx, rows, quant::Granularity::tensor, quant::ContractionAxis::last, amax.view());
      const float scale = quant::scale_from_amax(*amax.as<float>(), dtype::max_of(format), power_of_2);
      scales.as<float>()[p] = scale;
      inverse.as<float>()[p] = 1.0f / scale;
      quant::cast_to_bytes(ctx, rows, format, &scale, bytes.view().rows(part.begin, part.end), nullptr);
    }
  }
  Codes codes() const { return {bytes.view(), scales.view(), inverse.view()}; }
  Tensor bytes, scales, inverse;
};

// Compares layers prepared from the matrix and from gathered codes; `gather(context, layer, precision)` returns an
// object with codes().
template <class Gather>
void check_gathered(const quant::Recipe& recipe, Gather&& gather) {
  ASSERT_TRUE(recipe.fp8_all_gather);
  for (const DType type : kActivations)
    for (const bool power_of_2 : {false, true}) {
      Host host;
      Layer local(type, 24, 32, three_parts(true), kLossy), gathered(type, 24, 32, three_parts(true), kLossy);
      const LinearPrecision precision{&recipe, {power_of_2, nullptr}};
      local.run(host.ctx, precision);
      const auto t = gather(host.ctx, gathered, precision);
      const auto from_codes = [&](Pass pass) {
        return prepare_codes(host.ctx, t.codes(), gathered.bias.view(), gathered.parts, precision, pass);
      };
      gathered.run(host.ctx, from_codes(Pass::forward), from_codes(Pass::backward));
      EXPECT_EQ(values(local.y), values(gathered.y));
      EXPECT_EQ(values(local.dx), values(gathered.dx));
      EXPECT_EQ(values(local.dw), values(gathered.dw));
      EXPECT_EQ(local.engine.counts().linear(gemm::OperandKind::fp8).gemms,
                gathered.engine.counts().linear(gemm::OperandKind::fp8).gemms);
    }
}

TEST(Codes, GatheredWeightsGiveTheSameBits) {
  check_gathered(quant::find_recipe("tensorwise"),
                 [](const Context& ctx, const Layer& layer, const LinearPrecision& p) {
                   return GatheredCodes(ctx, layer, p.recipe->forward.w.format, p.options.power_of_2);
                 });
}

// Codes and scales of rows, which serve forward and dgrad.
struct GatheredRows {
  GatheredRows(const Context& ctx, const Layer& layer, const LinearPrecision& p)
      : bytes(DType::u8, {layer.n, layer.k}), scales(DType::f32, {layer.n}) {
    quant::cast_rows_to_bytes(ctx, layer.w.view(), DType::e4m3, p.options, bytes.view(), scales.view());
    inverse = quant::reciprocals(ctx, scales.view());
  }
  Codes codes() const { return {bytes.view(), scales.view(), inverse}; }
  Tensor bytes, scales;
  View inverse;
};

TEST(Codes, OneGatheredCopyGivesTheSameBits) {
  check_gathered(
      quant::with_single_copy(quant::find_recipe("rowwise")),
      [](const Context& ctx, const Layer& layer, const LinearPrecision& p) { return GatheredRows(ctx, layer, p); });
}

// Arena peak of a layer's forward and backward, prepared from the matrix.
std::size_t peak(DType type, const std::vector<Part>& parts, const quant::Recipe& recipe, device::Arena& arena,
                 const View& column_factors = {}) {
  Context ctx;
  ctx.arena = &arena;
  ctx.dry = arena.dry();
  Layer layer(type, 24, 32, parts, kLossy);
  LinearPrecision precision = precision_of(recipe);
  precision.column_factors = column_factors;
  layer.run(ctx, precision);
  if (ctx.dry) {
    EXPECT_EQ(layer.engine.counts().linear(gemm::OperandKind::fp8).gemms, 0);
    EXPECT_EQ(values(layer.y), Values(values(layer.y).size(), Layer::kUnset)) << "a dry run writes nothing";
    EXPECT_EQ(values(layer.dw), Values(values(layer.dw).size(), Layer::kUnset));
  }
  return arena.peak();
}

TEST(Memory, DryRunAllocatesAsMuchAsTheRun) {
  const Tensor factors = filled(DType::f32, {40}, 0.75);
  for (const DType type : kActivations)
    for (const quant::Recipe& recipe : quant::recipes())
      for (const std::vector<Part>& parts : splits())
        for (const View& of_columns : {View{}, factors.view()}) {
          device::Arena dry;
          const std::size_t planned = peak(type, parts, recipe, dry, of_columns);
          device::Arena real(planned, device::DeviceType::host);  // one byte less would throw
          EXPECT_EQ(peak(type, parts, recipe, real, of_columns), planned) << recipe.name;
        }
}

TEST(Memory, DryRunOfCodesAllocatesAsMuchAsTheRun) {
  const quant::Recipe& recipe = quant::find_recipe("tensorwise");
  const Layer layer(DType::bf16, 24, 32, three_parts(true), kLossy);
  const Tensor bytes(DType::u8, {layer.n, layer.k}), ones = filled(DType::f32, {3}, 1);
  std::vector<std::size_t> peaks;
  for (const bool is_dry : {true, false}) {
    device::Arena arena = is_dry ? device::Arena() : device::Arena(std::size_t{1} << 20, device::DeviceType::host);
    Context ctx;
    ctx.arena = &arena;
    ctx.dry = is_dry;
    (void)prepare_codes(ctx, {bytes.view(), ones.view(), ones.view()}, {}, layer.parts, precision_of(recipe),
                        Pass::forward);
    peaks.push_back(arena.peak());
  }
  EXPECT_EQ(peaks[0], peaks[1]);
  EXPECT_GT(peaks[0], 0u);
}

TEST(Memory, PassesReleaseTheirScratch) {
  for (const quant::Recipe& recipe : quant::recipes()) {
    Host host;
    Layer layer(DType::bf16, 24, 32, three_parts(true), kLossy);
    const Weight w = prepare(host.ctx, layer.w.view(), {}, layer.parts, precision_of(recipe), Pass::forward);
    const Weight wb = prepare(host.ctx, layer.w.view(), {}, layer.parts, precision_of(recipe), Pass::backward);
    const std::size_t mark = host.ctx.arena->mark();
    layer.run(host.ctx, w, wb);
    EXPECT_EQ(host.ctx.arena->mark(), mark) << recipe.name;
  }
}

}  // namespace
}  // namespace fp8::linear::test
