// Which models and settings the flags --pp and --stages accept, and what the message says about others.
#include "fp8/settings/checks.h"
#include "fp8/settings/mesh.h"
#include "small_model.h"

namespace fp8::settings {
namespace {

using namespace test;

// The message about a model of four layers on so many ranks.
std::string stages_refusal(std::int64_t pp, const std::vector<int>& stages = {}, std::int64_t ranks = 12) {
  hf::ModelConfig model = small_model();
  model.num_hidden_layers = 4;
  RunConfig c;
  c.model = "m.h5", c.pp = pp, c.stages = stages;
  const MeshLimits limits = mesh_limits(c.model, model, [](std::int64_t /*tp*/) { return ""; });
  return error_of([&] { fitting_mesh(c, ranks, limits, "fp8-step"); });
}

TEST(Stages, EachNeedsALayer) {
  EXPECT_EQ(stages_refusal(1), kNoError);
  EXPECT_EQ(stages_refusal(4), kNoError);
  EXPECT_EQ(stages_refusal(5), "--pp 5: m.h5 has 4 layers, and each stage needs one; --pp 4 fits");
  EXPECT_EQ(stages_refusal(5, {}, 10), "--pp 5: m.h5 has 4 layers, and each stage needs one; --pp 2 fits");
}

TEST(Stages, AreAsManyAsGivenAndHaveAllLayers) {
  EXPECT_EQ(stages_refusal(2, {3, 1}), kNoError);
  EXPECT_EQ(stages_refusal(1, {4}), kNoError);
  EXPECT_EQ(stages_refusal(1, {3, 1}), "--stages 3,1: these are 2 stages, and --pp is 1; --pp 2 fits");
  EXPECT_EQ(stages_refusal(3, {4}), "--stages 4: these are 1 stage, and --pp is 3; --pp 1 fits");
  EXPECT_EQ(stages_refusal(2, {3, 2}),
            "--stages 3,2: these are 5 layers, and m.h5 has 4; --pp 2 without --stages fits");
  EXPECT_EQ(stages_refusal(5, {3, 1}, 5),
            "--pp 5: m.h5 has 4 layers, and each stage needs one; --pp 1 without --stages fits");
}

TEST(Stages, AreThoseOfTheFlagOrEven) {
  const hf::ModelConfig model = small_model();
  const std::vector<model::Parameter> table = model::parameter_table(model);
  RunConfig c;
  const model::UnitCosts costs = costs_of_units(model, table, 16, device::DeviceType::host);
  EXPECT_EQ(layers_of_stages(c, costs), std::vector<int>{3});
  c.pp = 3;
  EXPECT_EQ(layers_of_stages(c, costs), (std::vector<int>{1, 1, 1}));
  c.pp = 2, c.stages = {1, 2};
  EXPECT_EQ(layers_of_stages(c, costs), c.stages);
}

// The linears of layers in FP8, which a host emulates, and a head in bf16.
TEST(Stages, CountFp8MoreOnAHost) {
  const hf::ModelConfig model = small_model();
  std::vector<model::Parameter> table = small_table(model);
  const auto costs = [&](device::DeviceType device) { return costs_of_units(model, table, 0, device); };
  const model::UnitCosts host = costs(device::DeviceType::host), gpu = costs(device::DeviceType::cuda);
  for (model::Parameter& p : table) p.fp8 = false;
  const model::UnitCosts bf16 = costs(device::DeviceType::host);
  EXPECT_NEAR(host.layers[1] / bf16.layers[1], 1.3, 1e-12);
  EXPECT_EQ(gpu.layers, bf16.layers);
  EXPECT_EQ(host.head, bf16.head);
}

}  // namespace
}  // namespace fp8::settings
