// Frequencies of full-size configurations against transformers' float32 values.
#include <gtest/gtest.h>

#include <cmath>

#include "fp8/hf/config.h"
#include "fp8/json/json.h"

namespace fp8::hf {
namespace {

TEST(Rope, frequencies_of_full_size_models) {
  const json::Value cases = json::parse_file("tests/golden/models/rope.json");
  ASSERT_FALSE(cases.as_array().empty());
  for (const json::Value& entry : cases.as_array()) {
    const json::Object& e = entry.as_object();
    const std::string& name = e.get_string("name", "rope.json");
    const json::Value config = json::object(
        {{"model_type", "llama"}, {"head_dim", e.at("head_dim")}, {"rope_parameters", e.at("rope_parameters")}});
    const std::vector<double> got = rope_inv_freq(parse_config(config, name));
    const json::Array& want = e.get_array("inv_freq", "rope.json");
    ASSERT_EQ(got.size(), want.size()) << name;
    for (std::size_t i = 0; i < got.size(); ++i) {
      // One unit in the last place: torch's vectorized power is not correctly rounded.
      EXPECT_NEAR(got[i] / want[i].as_double(), 1, 1.2e-7) << name << " " << i;
      EXPECT_EQ(got[i], static_cast<double>(static_cast<float>(got[i])));
    }
  }
}

TEST(Rope, linear_divides_positions) {
  ModelConfig c;
  c.head_dim = 4;
  c.rope = {.type = RopeType::linear, .theta = 16, .factor = 8};
  EXPECT_EQ(rope_inv_freq(c), (std::vector<double>{1.0 / 8, 1.0 / 32}));
}

}  // namespace
}  // namespace fp8::hf
