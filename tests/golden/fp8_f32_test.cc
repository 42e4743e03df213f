// FP8 linears in a model with float32 activations, against tests/golden/fp8-f32 within the bounds of its README. With
// bf16 activations the rounding would hide the differences between recipes.
#include <gtest/gtest.h>

#include "curve.h"
#include "fp8/data/sampler.h"

namespace fp8::golden {
namespace {

constexpr std::int64_t kSequences = 8, kLength = 64;

// Distances of the first step from the reference.
struct Distance {
  double loss, grad_norm, gradient;  // nats, relative, largest relative L2 of a gradient
  double norm = 0;                   // relative, of a gradient whose norm alone is stored
};

// The first global batch of the text.
struct FirstBatch {
  explicit FirstBatch(const std::string& token_file) : tokens(kSequences * kLength), targets(tokens.size()) {
    const data::TokenFile file(token_file);
    data::Sampler(file, data::SamplerKind::sequential, 0, kLength, kSequences, data::DocumentMode::joined)
        .batch(0, 0, kSequences, tokens, targets);
  }
  std::vector<std::int32_t> tokens, targets;
};

Distance first_step(const std::string& model_name, const quant::Recipe& recipe, const std::string& reference,
                    FirstBatch& first, gemm::Accumulation accumulation = gemm::Accumulation::f32) {
  const h5::Reader expected("tests/golden/fp8-f32/" + model_name + "-" + reference + ".h5");
  Model model(model_folder(model_name), DType::f32, &recipe, device::DeviceType::host, false, accumulation);
  constexpr double kTargets = kSequences * kLength;
  const Values losses =
      model.forward_backward(batch_of(first.tokens, first.targets, kSequences, kLength), 1 / kTargets);
  EXPECT_EQ(model.engine().counts().linear(gemm::OperandKind::fp8).gemms, 14 * recipe.fp8_gemms());
  double loss = 0;
  for (const double l : losses) loss += l / kTargets;
  Distance d{std::fabs(loss - values(expected, "loss").at(0)),
             std::fabs(model.gradient_norm() / values(expected, "grad_norm").at(0) - 1), 0, 0};
  for (const train::ParameterShard& own : model.store().shards()) {
    const std::string& name = model.store().table()[static_cast<std::size_t>(own.number)].name;
    if (expected.find("grad/" + name) == nullptr) {  // only its norm is stored
      double norm = 0;
      for (const double g : values(own.gradient)) norm += g * g;
      d.norm = std::fmax(d.norm, std::fabs(std::sqrt(norm) / values(expected, "norm/" + name).at(0) - 1));
      continue;
    }
    d.gradient = std::fmax(d.gradient, relative_l2(values(own.gradient), values(expected, "grad/" + name)));
  }
  return d;
}

const std::vector<std::string> kModels{"llama3", "qwen3"};

// Bounds of the first step. In two cases of qwen3 a code of a gradient (tensorwise: of layer 1's gate) is on a rounding
// tie that depends on the last bit of a float32, and rounds differently here. This changes the gradients of the layers
// below, not the loss.
struct Bounds {
  double loss = 1e-5, grad_norm = 5e-5, gradient = 1e-3;
};
Bounds bounds_of(const std::string& model, std::string_view recipe) {
  if (model == "qwen3" && recipe == "tensorwise") return {1e-5, 5e-4, 2e-2};
  if (model == "qwen3" && recipe == "rowwise") return {1e-5, 5e-5, 3e-3};
  return {};
}

TEST(Fp8InFloats, FirstStepMatchesForRecipesOfTorchao) {
  const TrainingFolder at("llama3");
  FirstBatch first(at.path("data.h5"));
  for (const std::string& model : kModels)
    for (const char* name : {"tensorwise", "rowwise", "rowwise_with_gw_hp"}) {
      const quant::Recipe& recipe = quant::find_recipe(name);
      const Distance d = first_step(model, recipe, name, first);
      const Bounds bounds = bounds_of(model, recipe.name);
      EXPECT_LE(d.loss, bounds.loss) << model << " " << recipe.name;
      EXPECT_LE(d.grad_norm, bounds.grad_norm) << model << " " << recipe.name;
      EXPECT_LE(d.gradient, bounds.gradient) << model << " " << recipe.name;
    }
}

// Bounds are those of the README: twice the change of the reference when norm weights change by 1e-7, at least 1e-4 and
// 1.5e-3. In `wide` channels differ by up to 2^14 in groups of 32, so that the granularity decides.
TEST(Fp8InFloats, FirstStepMatchesWithBlocks) {
  const TrainingFolder at("llama3");
  FirstBatch first(at.path("data.h5"));
  for (const std::string model : {"llama3", "qwen3", "wide"})
    for (const char* name : {"blockwise", "mxfp8"}) {
      const Distance d = first_step(model, quant::find_recipe(name), name, first);
      EXPECT_LE(d.loss, 1e-4) << model << " " << name;
      EXPECT_LE(d.grad_norm, 1.5e-3) << model << " " << name;
      EXPECT_LE(d.gradient, 2e-2) << model << " " << name;
      EXPECT_LE(d.norm, 2e-2) << model << " " << name;
    }
}

// In `wide` each of the two is outside of the bounds of the other.
TEST(Fp8InFloats, WideChannelsDistinguishBlocks) {
  const TrainingFolder at("llama3");
  FirstBatch first(at.path("data.h5"));
  for (const auto& [ran, other] : {std::pair{"blockwise", "mxfp8"}, {"mxfp8", "blockwise"}, {"rowwise", "blockwise"}}) {
    const Distance d = first_step("wide", quant::find_recipe(ran), other, first);
    EXPECT_TRUE(d.loss > 1e-4 || d.grad_norm > 1.5e-3) << ran << " for " << other;
  }
}

// Tensor cores truncate terms of a sum, so more codes differ. The bounds are twice the change of the reference when
// norm weights change by 1e-7. Results with f32 sums are outside of the bounds.
TEST(Fp8InFloats, FirstStepMatchesWithTheSumsOfAnH100) {
  const TrainingFolder at("llama3");
  FirstBatch first(at.path("data.h5"));
  const quant::Recipe& recipe = quant::find_recipe("tensorwise");
  for (const auto& [model, bounds] : {std::pair<std::string, Bounds>{"llama3", {1.1e-3, 2.8e-3, 5e-2}},
                                      std::pair<std::string, Bounds>{"qwen3", {8.4e-4, 6.8e-3, 5e-2}}}) {
    const Distance d = first_step(model, recipe, "tensorwise_hopper", first, gemm::Accumulation::hopper);
    EXPECT_LE(d.loss, bounds.loss) << model;
    EXPECT_LE(d.grad_norm, bounds.grad_norm) << model;
    EXPECT_LE(d.gradient, bounds.gradient) << model;
    const Distance f32 = first_step(model, recipe, "tensorwise_hopper", first);
    EXPECT_GT(f32.gradient, bounds.gradient) << model;
  }
}

// Each recipe of torchao compared with the values of the others exceeds the bounds above.
TEST(Fp8InFloats, BoundsDistinguishRecipes) {
  const TrainingFolder at("llama3");
  FirstBatch first(at.path("data.h5"));
  const std::vector<std::string> names{"tensorwise", "rowwise", "rowwise_with_gw_hp"};
  for (const std::string& ran : names)
    for (const std::string& other : names) {
      if (ran == other) continue;
      const Distance d = first_step("llama3", quant::find_recipe(ran), other, first);
      EXPECT_TRUE(d.loss > 1e-4 || d.grad_norm > 1e-4) << ran << " for " << other;
      EXPECT_GT(d.gradient, 1e-2) << ran << " for " << other;
    }
}

}  // namespace
}  // namespace fp8::golden
