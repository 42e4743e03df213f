// Mixtures of experts in FP8 with float32 activations, against tests/golden/fp8-moe within the bounds of its README:
// loss, norm and gradients of the first step under every recipe, ten steps, and the losses that balance experts. In
// `wide-moe` experts have 0, 1, 5, 8 and 512 rows, and channels differ from expert to expert by powers of two up to
// 2^14, so that a scale, or a block, that covers rows of two experts is outside of the bounds.
#include <gtest/gtest.h>

#include "curve.h"
#include "fp8/hf/safetensors.h"

namespace fp8::golden {
namespace {

const std::string kFolder = "tests/golden/fp8-moe/";

// A recipe of the references, by the end of the name of its files.
struct Case {
  std::string name, recipe;
  bool single_copy = false;
  gemm::Accumulation accumulation = gemm::Accumulation::f32;
};
const std::vector<Case> kCases{{"tensorwise", "tensorwise"},
                               {"rowwise", "rowwise"},
                               {"rowwise_single_copy", "rowwise", true},
                               {"rowwise_with_gw_hp", "rowwise_with_gw_hp"},
                               {"current", "current"},
                               {"delayed", "delayed"},
                               {"blockwise", "blockwise"},
                               {"mxfp8", "mxfp8"},
                               {"tensorwise_hopper", "tensorwise", false, gemm::Accumulation::hopper}};
const std::vector<std::string> kMixtures{"mixtral", "wide-moe"};

settings::RunConfig moe_config(const Case& c) {
  settings::RunConfig config = hundred_steps();
  config.steps = 10;
  config.schedule.warmup = 4;
  config.precision.precision = settings::Precision::fp8;
  config.precision.recipe = c.recipe;
  config.precision.rowwise_single_copy = c.single_copy;
  config.precision.accumulation = c.accumulation;
  config.precision.execution.activation = DType::f32;
  config.precision.delayed.history = 4;
  return config;
}

// The gradients of a file, by name.
struct GradientFile {
  explicit GradientFile(const std::string& path) : file(path) {}
  Values of(const std::string& name) const {
    const hf::TensorInfo* info = file.find(name);
    if (info == nullptr) throw Error("no gradient " + name);
    std::vector<float> floats(static_cast<std::size_t>(info->elements()));
    file.read_rows_f32(*info, 0, info->shape[0], floats);
    return {floats.begin(), floats.end()};
  }
  hf::SafetensorsFile file;
};

json::Value read_json(const std::string& path) { return json::parse(test::read_file(path), path); }

// Compares the gradients of a reference, whole or their norms, with bounds of three times the change of each gradient
// (of its norm) when norm weights change by 1e-7, and at least 1e-3.
void check_gradients(const test::PlainFile& expected, const GradientFile& file, const json::Object& spread) {
  std::size_t norms = 0;
  for (const h5::Entry& e : expected.list()) {
    const std::size_t slash = e.name.find('/');
    if (slash == std::string::npos) continue;
    const std::string name = e.name.substr(slash + 1);
    const Values found = file.of(name), reference = values(expected, e.name);
    const json::Array& moved = spread.at(name).as_array();
    const auto bound = [&](std::size_t i) { return std::fmax(1e-3, 3 * moved.at(i).as_double()); };
    if (e.name.starts_with("grad/")) {
      if (norm(reference) == 0)
        EXPECT_EQ(norm(found), 0) << name;
      else
        EXPECT_LE(relative_l2(found, reference), bound(0)) << name;
    } else {
      ++norms;
      EXPECT_NEAR(norm(found), reference.at(0), bound(1) * reference.at(0)) << name;
    }
  }
  EXPECT_EQ(norms, file.file.tensors().size());
}

TEST(Experts, FirstStepAndGradientsMatchForEveryRecipe) {
  const json::Value tensors = read_json(kFolder + "spread-tensors.json"),
                    steps = read_json(kFolder + "spread-moe.json");
  for (const std::string& model : kMixtures) {
    const TrainingFolder at(model);
    for (const Case& c : kCases) {
      const std::string name = model + "-" + c.name;
      SCOPED_TRACE(name);
      settings::RunConfig config = moe_config(c);
      config.until_step = 1;
      config.gradients = at.path(name + ".safetensors");
      const Curve ran = at.run(config, name);
      const test::PlainFile expected(kFolder + name + ".h5");
      const json::Object& spread = steps.as_object().at(name).as_object();
      ASSERT_EQ(ran.size(), 1U);
      EXPECT_NEAR(ran[0].loss, values(expected, "loss").at(0), std::fmax(1e-4, 2 * spread.get_double("loss", name)));
      EXPECT_NEAR(ran[0].grad_norm / values(expected, "grad_norm").at(0), 1,
                  std::fmax(1.5e-3, 2 * spread.get_double("grad_norm", name)));
      check_gradients(expected, GradientFile(config.gradients), tensors.as_object().at(name).as_object());
    }
  }
}

// Recipes without and with a state that steps share; the first step above tells all recipes apart.
TEST(Experts, TenStepsMatch) {
  for (const std::string& model : kMixtures) {
    const TrainingFolder at(model);
    for (const Case& c : kCases) {
      if (c.name != "tensorwise" && c.name != "delayed") continue;
      const Curve ran = at.run(moe_config(c), c.name),
                  reference = read_curve(kFolder + model + "-" + c.name + ".jsonl");
      ASSERT_EQ(ran.size(), reference.size());
      // Delayed scales of experts with few rows follow from the rows of earlier steps. In `wide-moe` from step 7 on a
      // last bit decides which tokens they get and which of their gradients saturate.
      const std::size_t steps = c.name == "delayed" && model == "wide-moe" ? 7 : ran.size();
      for (std::size_t i = 0; i < steps; ++i)
        EXPECT_NEAR(ran[i].loss, reference[i].loss, 2e-2) << model << " " << c.name << " step " << i;
    }
  }
}

// A step in fp32 with losses that balance experts: both losses, the norm, and the gradients.
TEST(Experts, LossesThatBalanceMatch) {
  for (const std::string& model : kMixtures) {
    SCOPED_TRACE(model);
    const TrainingFolder at(model);
    const test::PlainFile expected(kFolder + model + "-balance.h5");
    settings::RunConfig config = hundred_steps();
    config.until_step = 1;
    config.precision.precision = settings::Precision::fp32;
    config.precision.execution.activation = DType::f32;
    config.aux_loss = values(expected, "aux_coefficient").at(0);
    config.z_loss = values(expected, "z_coefficient").at(0);
    config.gradients = at.path("balance.safetensors");
    const Curve ran = at.run(config, "balance");
    EXPECT_NEAR(ran.at(0).loss, values(expected, "loss").at(0), 5e-6);
    EXPECT_NEAR(ran.at(0).grad_norm / values(expected, "grad_norm").at(0), 1, 2e-6);
    const GradientFile file(config.gradients);
    for (const h5::Entry& e : expected.list()) {
      const std::size_t slash = e.name.find('/');
      if (slash == std::string::npos) continue;
      const Values found = file.of(e.name.substr(slash + 1)), reference = values(expected, e.name);
      if (e.name.starts_with("grad/"))
        EXPECT_LE(relative_l2(found, reference), 2e-5) << e.name;
      else
        EXPECT_NEAR(norm(found), reference.at(0), 2e-5 * reference.at(0)) << e.name;
    }
  }
}

}  // namespace
}  // namespace fp8::golden
