// Amaxes that operations record for the casts of a layer: every scale of one for a whole activation or gradient is that
// of its own amax, in every way of recomputation, and with linears that are not FP8 between those that are.
#include <gtest/gtest.h>

#include <bit>

#include "decoder_reference.h"
#include "fp8/linear/observer.h"

namespace fp8::model {
namespace {

using dtype::DType;
using tensor::Tensor;

// Compares the scales of x and dy with those of their amaxes, computed again.
struct ScaleChecker final : linear::Observer {
  explicit ScaleChecker(const quant::Recipe& of) : recipe(of) {}
  bool active() const override { return true; }
  void observe(const linear::Call&, const linear::ObservedGemm& gemm) override {
    check(gemm.a, gemm.a_source);
    if (gemm.role == gemm::GemmRole::wgrad) check(gemm.b, gemm.b_source);
  }
  void check(const quant::Quantized& q, const View& source) {
    ASSERT_EQ(q.granularity, quant::Granularity::tensor);
    const Context host;
    const Tensor amax(DType::f32, {1}), scale(DType::f32, {1}), inverse(DType::f32, {1});
    quant::amax(host, source, quant::Granularity::tensor, quant::ContractionAxis::last, amax.view());
    quant::scales_from_amax(host, amax.view(), {q.format, recipe.scale_rule, recipe.power_of_2}, scale.view(),
                            inverse.view());
    EXPECT_EQ(std::bit_cast<std::uint32_t>(*q.scale.as<float>()), std::bit_cast<std::uint32_t>(*scale.as<float>()))
        << recipe.name << ", operand " << checked;
    ++checked;
  }
  const quant::Recipe& recipe;
  int checked = 0;
};

TEST(Amaxes, ScalesAreThoseOfTheTensorsThatAreCast) {
  hf::ModelConfig config = reference::small_config();
  config.num_hidden_layers = 3;
  config.qk_norm = true;
  for (const char* name : {"tensorwise", "current"})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      for (const std::vector<std::string>& excluded :
           std::vector<std::vector<std::string>>{{},
                                                 {"model.layers.1.mlp.down_proj.weight"},
                                                 {"*.0.mlp.gate_proj.weight", "*.2.self_attn.o_proj.weight"}}) {
        const quant::Recipe& recipe = quant::find_recipe(name);
        ScaleChecker checker(recipe);
        std::vector<Parameter> table = parameter_table(config);
        assign_precisions(table, {.recipe = &recipe, .filters = excluded});
        reference::MemorySource source(config, table, reference::some_weights(table), DType::bf16,
                                       {&recipe, {recipe.power_of_2, nullptr}, gemm::Accumulation::f32, &checker});
        reference::Text text = reference::some_text(1, 16, config.vocab_size, 5);
        device::Arena arena(std::size_t{8} << 20, device::DeviceType::host);
        Context ctx;
        ctx.arena = &arena;
        gemm::Engine engine;
        const Tensor losses(DType::f32, {16});
        reference::train(Decoder(config, {DType::bf16, recompute}), ctx, engine, source, text.batch(), 1,
                         losses.view());
        EXPECT_GT(checker.checked, 50);
        const int before = checker.checked;
        Decoder(config, {DType::bf16, recompute}).forward(ctx, engine, source, text.batch(), losses.view());
        EXPECT_GT(checker.checked, before);
      }
}

}  // namespace
}  // namespace fp8::model
