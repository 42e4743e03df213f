// Presets of the suite, and keys set on the command line.
#include "fp8/model/presets.h"

#include <cstdlib>
#include <fstream>

#include "fp8/hf/config.h"
#include "fp8/json/json.h"
#include "fp8/model/parameters.h"
#include "golden_models.h"

namespace fp8::model {
namespace {

using test::error_of;

class Presets : public test::FolderTest {
 protected:
  void SetUp() override { ASSERT_EQ(::setenv("FP8_SHARE", "share", 1), 0); }
};

std::int64_t size_of(const std::string& name) {
  return parameter_count(parameter_table(hf::parse_config(read_model_config(name), name)));
}

TEST_F(Presets, EveryOneIsAModel) {
  const std::vector<std::string> names = preset_names();
  EXPECT_GE(names.size(), 13U);
  for (const std::string& name : names) EXPECT_GT(size_of(name), 0) << name;
}

// The published numbers of parameters.
TEST_F(Presets, Sizes) {
  EXPECT_EQ(size_of("llama3-8b"), 8030261248);
  EXPECT_EQ(size_of("llama3.2-1b"), 1235814400);
  EXPECT_EQ(size_of("mistral-7b"), 7248023552);
  EXPECT_EQ(size_of("qwen2.5-0.5b"), 494032768);
  EXPECT_EQ(size_of("qwen3-0.6b"), 596049920);
  EXPECT_EQ(size_of("mixtral-8x7b"), 46702792704);
  EXPECT_EQ(size_of("qwen3-30b-a3b"), 30532122624);
}

TEST_F(Presets, LinearsOfTheDemoAreAllEligible) {
  for (const Parameter& p : parameter_table(hf::parse_config(read_model_config("demo"), "demo"))) {
    EXPECT_EQ(p.fp8, p.role == ParameterRole::linear) << p.name;
  }
}

TEST_F(Presets, UnknownNameListsThem) {
  EXPECT_NE(error_of([] { read_model_config("tinny"); }).find("tinny: neither a file nor a preset (demo, "),
            std::string::npos);
}

TEST_F(Presets, FilesAreReadByPath) {
  write("mine.json", R"({"model_type": "llama"})");
  EXPECT_TRUE(read_model_config(at("mine.json")).as_object().contains("model_type"));
  EXPECT_NE(error_of([&] { read_model_config(at("none.json")); }).find("none.json: "), std::string::npos);
}

TEST_F(Presets, AMissingShareFolder) {
  ASSERT_EQ(::setenv("FP8_SHARE", at("no").c_str(), 1), 0);
  EXPECT_EQ(error_of([] { preset_names(); }).find(at("no") + "/presets: cannot be listed"), 0U);
}

TEST(SetConfigKey, JsonOrText) {
  json::Value config = json::parse(R"({"hidden_size": 64, "own": 1, "rope_parameters": {"rope_theta": 1.0}})", "c");
  set_config_key(config, "hidden_size=128");
  set_config_key(config, "own={\"a\": [1]}");
  set_config_key(config, "hidden_act=silu");
  set_config_key(config, "rope_parameters.rope_theta=5e5");
  set_config_key(config, "rope_parameters.rope_type=a=b");
  EXPECT_EQ(config, json::parse(R"({"hidden_size": 128, "own": {"a": [1]}, "hidden_act": "silu",
                                    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "a=b"}})",
                                "c"));
}

TEST(SetConfigKey, Refusals) {
  json::Value config = json::parse(R"({"hidden_size": 64, "rope_parameters": 3})", "c");
  EXPECT_EQ(error_of([&] { set_config_key(config, "hidden=1"); }), "hidden=1: no such key in the configuration");
  EXPECT_EQ(error_of([&] { set_config_key(config, "hidden_size"); }), "hidden_size: expected KEY=VALUE");
  EXPECT_EQ(error_of([&] { set_config_key(config, "=1"); }), "=1: expected KEY=VALUE");
  EXPECT_EQ(error_of([&] { set_config_key(config, "rope_parameters.factor=2"); }),
            "rope_parameters.factor=2: rope_parameters is not an object");
  EXPECT_EQ(error_of([&] { set_config_key(config, "hidden_size.x=2"); }),
            "hidden_size.x=2: no such key in the configuration");
}

}  // namespace
}  // namespace fp8::model
