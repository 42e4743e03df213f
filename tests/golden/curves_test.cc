// Runs of 100 steps from a Hugging Face folder and a text, against the curves of PyTorch in tests/golden/curves, within
// the bounds of its README.
#include <gtest/gtest.h>

#include "curve.h"
#include "fp8/ckpt/checkpoint.h"
#include "fp8/hf/safetensors.h"

namespace fp8::golden {
namespace {

settings::RunConfig curve_config(const std::string& precision, const std::string& recipe) {
  settings::RunConfig c = hundred_steps();
  c.precision.precision = precision == "fp32"   ? settings::Precision::fp32
                          : precision == "bf16" ? settings::Precision::bf16
                                                : settings::Precision::fp8;
  c.precision.execution.activation = precision == "fp32" ? DType::f32 : DType::bf16;
  if (!recipe.empty()) c.precision.recipe = recipe;
  return c;
}

void check_curve(const std::string& name, const Bounds& bounds, const Curve& curve) {
  check(curve, read_curve("tests/golden/curves/llama3-" + name + ".jsonl"), bounds, name);
}

// Relative L2 distance of all weights of the run's last checkpoint from the reference.
double weights_distance(const std::string& checkpoint, const std::string& reference) {
  const auto ours = ckpt::Checkpoint::open(checkpoint);
  const hf::SafetensorsFile file(reference);
  EXPECT_EQ(ours.tensors("weights/").size(), file.tensors().size());
  double difference = 0, size = 0;
  for (const hf::TensorInfo& t : file.tensors()) {
    std::vector<float> want(static_cast<std::size_t>(t.elements())), got(want.size());
    file.read(t, 0, std::as_writable_bytes(std::span(want)));
    const ckpt::TensorMeta& meta = ours.at("weights/" + t.name);
    EXPECT_EQ(meta.shape, t.shape) << t.name;
    ours.read_rows_as_f32(meta.name, 0, meta.rows(), got);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const auto w = static_cast<double>(want[i]), d = static_cast<double>(got[i]) - w;
      difference += d * d;
      size += w * w;
    }
  }
  return std::sqrt(difference / size);
}

TEST(Curves, F32MatchesPyTorch) {
  const TrainingFolder at("llama3");
  const Curve curve = at.run(curve_config("fp32", ""), "run");
  check_curve("fp32", {1e-5, 2e-6, 2e-6}, curve);
  EXPECT_LE(weights_distance(at.path("run/step-00000100"), "tests/golden/curves/llama3-fp32-final.safetensors"), 1e-5);
}

TEST(Curves, Bf16MatchesPyTorch) {
  const TrainingFolder at("llama3");
  check_curve("bf16", {8e-3, 1.5e-3, 3e-3}, at.run(curve_config("bf16", ""), "run"));
}

TEST(Curves, EveryRecipeMatchesTorchao) {
  const TrainingFolder at("llama3");
  for (const std::string recipe : {"tensorwise", "rowwise", "rowwise_with_gw_hp"}) {
    const Curve curve = at.run(curve_config("fp8", recipe), recipe);
    check_curve(recipe, {3e-2, 5e-3, 2e-2}, curve);
    const int gemms = 14 * quant::find_recipe(recipe).fp8_gemms();
    for (const Step& step : curve) EXPECT_EQ(step.fp8_gemms, gemms) << recipe;
  }
}

// The bounds above are tight enough: the curve of another precision exceeds them.
TEST(Curves, BoundsDistinguishF32FromBf16) {
  const auto fp32 = read_curve("tests/golden/curves/llama3-fp32.jsonl"),
             bf16 = read_curve("tests/golden/curves/llama3-bf16.jsonl");
  EXPECT_GT(distance(bf16, fp32).loss_max, 1e-5);
  EXPECT_GT(distance(bf16, fp32).loss_mean, 2e-6);
}

}  // namespace
}  // namespace fp8::golden
