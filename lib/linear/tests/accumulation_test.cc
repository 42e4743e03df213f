// Accumulation of a layer's FP8 GEMMs as on a tensor core: forward with fast accumulation, dgrad and wgrad without. The
// sums themselves are tested in crate gemm.
#include <gtest/gtest.h>

#include "layer.h"

namespace fp8::linear::test {
namespace {

constexpr std::int64_t kSide = 288;  // more than one chain, and sums that are not exact

struct Cast {
  const View& matrix;
  const quant::Cast& cast;
  quant::ContractionAxis contract;
};

// The scales of an operand, [outer, K] for blocks.
View scales_of(const quant::Quantized& q) {
  const bool turned = q.inverse_scale.rank == 2 && q.contract == quant::ContractionAxis::first;
  return turned ? q.inverse_scale.transposed() : q.inverse_scale;
}

gemm::ScaleBlocks blocks_of(const quant::Quantized& q) {
  if (q.granularity == quant::Granularity::block1x128) return gemm::ScaleBlocks::block1x128;
  return q.granularity == quant::Granularity::block128x128 ? gemm::ScaleBlocks::block128x128 : gemm::ScaleBlocks::none;
}

// The GEMM of two casts.
Values gemm_of(const Context& ctx, const Cast& a, bool a_transposed, const Cast& b, bool b_transposed, bool fast,
               const quant::Recipe& recipe, DType out) {
  const auto operand = [&](const Cast& c, bool transposed) {
    const quant::Quantized q = quant::quantize(ctx, c.matrix, c.cast, c.contract, {recipe.power_of_2, nullptr});
    const bool high = q.granularity == quant::Granularity::none;
    return gemm::Operand{transposed ? q.codes.transposed() : q.codes, high ? q.codes.dtype : q.format, scales_of(q),
                         blocks_of(q)};
  };
  const Tensor sums(out, {kSide, kSide});
  gemm::MatmulOptions options;
  options.fast_accumulation = fast;
  options.accumulation = gemm::Accumulation::hopper;
  gemm::Engine().matmul(ctx, operand(a, a_transposed), operand(b, b_transposed), sums.view(), options);
  return values(sums);
}

TEST(Accumulation, ForwardIsFastAndGradientsAreNot) {
  using quant::ContractionAxis;
  for (const DType type : {DType::f32, DType::bf16})
    for (const quant::Recipe& recipe : quant::recipes()) {
      if (recipe.emulated_everywhere()) continue;  // no tensor core of Hopper has its GEMMs
      Host host(std::size_t{8} << 20);
      Layer layer(type, kSide, kSide, {{0, kSide, true}}, {1000});
      for (std::int64_t i = 0; i < kSide; ++i) set(layer.bias.view(), i, 0);
      LinearPrecision precision = precision_of(recipe);
      precision.accumulation = gemm::Accumulation::hopper;
      layer.run(host.ctx, precision);
      const auto sums = [&](const Cast& a, bool a_transposed, const Cast& b, bool b_transposed, bool fast, DType out) {
        return gemm_of(host.ctx, a, a_transposed, b, b_transposed, fast, recipe, out);
      };
      const View x = layer.x.view(), w = layer.w.view(), dy = layer.dy.view();
      const Cast x_forward{x, recipe.forward.x, ContractionAxis::last},
          x_wgrad{x, recipe.wgrad.x, ContractionAxis::first};
      const Cast w_forward{w, recipe.forward.w, ContractionAxis::last},
          w_dgrad{w, recipe.dgrad.w, ContractionAxis::first};
      const Cast dy_dgrad{dy, recipe.dgrad.dy, ContractionAxis::last},
          dy_wgrad{dy, recipe.wgrad.dy, ContractionAxis::first};
      const bool fast = recipe.fast_accumulation;
      EXPECT_EQ(values(layer.y), sums(x_forward, false, w_forward, true, fast, type)) << recipe.name;
      EXPECT_EQ(values(layer.dx), sums(dy_dgrad, false, w_dgrad, false, false, type)) << recipe.name;
      if (fast) {
        EXPECT_NE(values(layer.y), sums(x_forward, false, w_forward, true, false, type)) << recipe.name;
        EXPECT_NE(values(layer.dx), sums(dy_dgrad, false, w_dgrad, false, true, type)) << recipe.name;
      }
      EXPECT_EQ(values(layer.dw), sums(dy_wgrad, true, x_wgrad, false, false, DType::f32)) << recipe.name;
    }
}

}  // namespace
}  // namespace fp8::linear::test
