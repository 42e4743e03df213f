// Which models and settings the flags --pp and --stages accept, and what the message says about others.
#include "fp8/settings/checks.h"
#include "small_model.h"

namespace fp8::settings {
namespace {

using namespace test;

// The message about a model of four layers.
std::string refusal(std::int64_t pp, const std::vector<int>& stages = {}) {
  hf::ModelConfig model = small_model();
  model.num_hidden_layers = 4;
  RunConfig c;
  c.model = "m.h5", c.pp = pp, c.stages = stages;
  return error_of([&] { check_stages(c, model); });
}

constexpr const char* kFits = "no error";

TEST(Stages, EachNeedsALayer) {
  EXPECT_EQ(refusal(1), kFits);
  EXPECT_EQ(refusal(4), kFits);
  EXPECT_EQ(refusal(5), "--pp 5: m.h5 has 4 layers, and each stage needs one; --pp 4 fits");
}

TEST(Stages, AreAsManyAsGivenAndHaveAllLayers) {
  EXPECT_EQ(refusal(2, {3, 1}), kFits);
  EXPECT_EQ(refusal(1, {4}), kFits);
  EXPECT_EQ(refusal(1, {3, 1}), "--stages 3,1: these are 2 stages, and --pp is 1");
  EXPECT_EQ(refusal(3, {4}), "--stages 4: these are 1 stage, and --pp is 3");
  EXPECT_EQ(refusal(2, {3, 2}), "--stages 3,2: these are 5 layers, and m.h5 has 4");
}

TEST(Stages, AreThoseOfTheFlagOrEven) {
  const hf::ModelConfig model = small_model();
  const std::vector<model::Parameter> table = model::parameter_table(model);
  RunConfig c;
  c.seq_length = 16;
  EXPECT_EQ(layers_of_stages(c, model, table), std::vector<int>{3});
  c.pp = 3;
  EXPECT_EQ(layers_of_stages(c, model, table), (std::vector<int>{1, 1, 1}));
  c.pp = 2, c.stages = {1, 2};
  EXPECT_EQ(layers_of_stages(c, model, table), c.stages);
}

}  // namespace
}  // namespace fp8::settings
