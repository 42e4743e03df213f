// The file of --gradients: names, values before clipping, metadata, and starts of a run that skip, mask or resume; and
// the gradients of transformers.
#include "fp8/train/gradients.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "fp8/convert/convert.h"
#include "fp8/data/tokens.h"
#include "fp8/hf/folder.h"
#include "fp8/hf/safetensors.h"
#include "plain_file.h"
#include "run_fixture.h"

namespace fp8::train {
namespace {

class Gradients : public Run {
 protected:
  Gradients() { config_.gradients = at("g.safetensors"); }
  // All values of the file; checks that it is complete.
  std::vector<float> values() {
    const hf::SafetensorsFile file(config_.gradients);
    std::vector<float> all;
    for (const hf::TensorInfo& t : file.tensors()) {
      EXPECT_EQ(t.dtype, "F32") << t.name;
      std::vector<float> one(static_cast<std::size_t>(t.elements()));
      file.read_rows_f32(t, 0, t.shape[0], one);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  std::string metadata(const std::string& key) {
    const auto all = hf::SafetensorsFile(config_.gradients).metadata();
    return all.contains(key) ? all.at(key) : "missing";
  }
  double norm() {
    double sum = 0;
    for (const float v : values()) sum += static_cast<double>(v) * static_cast<double>(v);
    return std::sqrt(sum);
  }
  const json::Object& record(const std::string& type) const {
    for (const json::Value& r : records_)
      if (r.as_object().get_string("type", "record") == type) return r.as_object();
    throw Error("no record " + type);
  }
};

TEST_F(Gradients, HaveTheNormOfTheRecordBeforeClipping) {
  config_.clip = 1e-3;
  config_.grad_accumulation = 2;
  EXPECT_EQ(go(), Exit::done);
  const json::Object& step = record("step");
  EXPECT_NEAR(norm() / step.get_double("grad_norm", "step"), 1, 1e-6);
  for (const char* key : {"loss", "grad_norm", "step", "tokens"}) EXPECT_EQ(metadata(key), json::dump(step.at(key)));
  EXPECT_EQ(metadata("mesh"), R"({"dp_replicate":1,"dp_shard":1,"pp":1,"ep":1,"tp":1})");
  EXPECT_EQ(metadata("mesh"), json::dump(record("run").at("mesh")));
  EXPECT_EQ(metadata("precision") + " " + metadata("recipe") + " " + metadata("format"), "bf16 none pt");
  EXPECT_EQ(metadata("attention_heads"), R"({"num_attention_heads":8,"num_key_value_heads":8,"head_dim":2})");
  EXPECT_NE(notes_.find("the gradients of step 1 are in " + config_.gradients), std::string::npos);
  EXPECT_EQ(story(), "run, step 1, step 2, step 3, step 4, checkpoint 4, end 4, ");
}

TEST_F(Gradients, HaveTheNamesAndShapesOfTheModel) {
  EXPECT_EQ(go(), Exit::done);
  const hf::SafetensorsFile file(config_.gradients);
  const auto table = model::parameter_table(small_model());
  EXPECT_EQ(file.tensors().size(), table.size());
  for (const model::Parameter& p : table) {
    const hf::TensorInfo* t = file.find(p.name);
    ASSERT_NE(t, nullptr) << p.name;
    EXPECT_EQ(t->shape, p.shape) << p.name;
  }
}

// Models of tests/golden/models, within the bounds of its README for float32.
TEST_F(Gradients, AreThoseOfTransformers) {
  config_.precision.precision = settings::Precision::fp32, config_.precision.execution.activation = DType::f32;
  config_.steps = 1, config_.sampler = data::SamplerKind::sequential;
  for (const char* name : {"llama3", "llama-tied", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    const std::string golden = std::string("tests/golden/models/") + name;
    const test::PlainFile expected(golden + "/expected.h5");
    config_.seq_length = expected.at("tokens").shape.at(1);
    for (std::string* path : {&config_.model, &config_.data, &config_.out, &config_.gradients}) *path = at(name);
    config_.model += ".h5", config_.data += "-data.h5", config_.gradients += ".safetensors";
    (void)convert::convert(golden + "/hf", config_.model, {});
    data::TokenInfo info;
    info.vocab_size = 256, info.sequence_length = config_.seq_length;
    data::TokenWriter writer(config_.data, info, false);
    const auto tokens = expected.read_as<std::int32_t>("tokens");
    for (auto i = tokens.begin(); i != tokens.end(); i += config_.seq_length) {
      writer.append(std::vector<std::uint32_t>(i, i + config_.seq_length));
      writer.end_document();
    }
    (void)writer.finish();
    EXPECT_EQ(go(), Exit::done);
    EXPECT_NEAR(std::stod(metadata("loss")), expected.read_as<double>("loss").at(0), 5e-6);
    EXPECT_NEAR(std::stod(metadata("grad_norm")) / expected.read_as<double>("grad_norm").at(0), 1, 1e-6);
    const hf::SafetensorsFile file(config_.gradients);
    for (const hf::TensorInfo& t : file.tensors()) {
      std::vector<float> values(static_cast<std::size_t>(t.elements()));
      file.read_rows_f32(t, 0, t.shape[0], values);
      const auto wanted = expected.read_as<float>("grad/" + t.name);
      double difference = 0, size = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        difference += std::pow(static_cast<double>(values[i]) - static_cast<double>(wanted.at(i)), 2);
        size += std::pow(static_cast<double>(wanted[i]), 2);
      }
      EXPECT_LE(std::sqrt(difference / size), 2e-5) << t.name;
    }
    EXPECT_EQ(file.tensors().size(), model::parameter_table(hf::Folder(golden + "/hf").config()).size());
  }
}

TEST_F(Gradients, OfAdaptersAloneAreNamedAsInPeft) {
  config_.lora.rank = 4, config_.lora.targets = {"q_proj"};
  EXPECT_EQ(go(), Exit::done);
  const hf::SafetensorsFile file(config_.gradients);
  EXPECT_EQ(file.tensors().size(), 6u);  // A and B in three layers
  EXPECT_NE(file.find("base_model.model.model.layers.2.self_attn.q_proj.lora_B.weight"), nullptr);
  EXPECT_NEAR(norm() / record("step").get_double("grad_norm", "step"), 1, 1e-6);
}

TEST_F(Gradients, DoNotChangeTheRun) {
  config_.precision.precision = settings::Precision::fp8;
  config_.precision.recipe = "delayed";
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(metadata("precision") + " " + metadata("recipe"), "fp8 delayed");
  const std::string with = losses();
  config_.gradients.clear(), config_.out = at("other");
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(losses(), with);
}

TEST_F(Gradients, AreThoseOfTheFirstStepOfAStart) {
  config_.until_step = 2;
  EXPECT_EQ(go(), Exit::done);
  config_.until_step = 0, config_.force = true;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(metadata("step"), "3");
  EXPECT_EQ(metadata("tokens"), "48");
  EXPECT_NEAR(norm() / record("step").get_double("grad_norm", "step"), 1, 1e-6);
}

// The same command resumes the run.
TEST_F(Gradients, OfAnEarlierStartAreKept) {
  config_.until_step = 2;
  EXPECT_EQ(go(), Exit::done);
  const std::string first = test::read_file(config_.gradients);
  config_.until_step = 3;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(test::read_file(config_.gradients), first);
  EXPECT_NE(notes_.find(config_.gradients + " exists and is kept"), std::string::npos) << notes_;
}

// A file that exists is refused before anything is made; a finished run writes nothing and refuses nothing.
TEST_F(Gradients, AFileThatExistsIsKept) {
  test::write_file(config_.gradients, "kept");
  EXPECT_EQ(refusal(), config_.gradients + ": exists");
  EXPECT_FALSE(std::filesystem::exists(config_.out + "/log.jsonl"));
  EXPECT_EQ(test::read_file(config_.gradients), "kept");
  config_.force = true;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_NO_THROW((void)values());
  config_.force = false;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_NE(notes_.find("nothing to do"), std::string::npos);
  config_.gradients = config_.data, config_.force = true, config_.out = at("other");
  EXPECT_NE(refusal().find("is also an input"), std::string::npos);
}

// A rate that makes the weights of step 1 so large that step 2, the first of the next start, is not finite.
TEST_F(Gradients, OfASkippedStepAreWritten) {
  config_.schedule.lr = 1e30, config_.until_step = 1;
  EXPECT_EQ(go(), Exit::done);
  config_.until_step = 2, config_.force = true;
  EXPECT_EQ(refusal(Exit::diverged).substr(0, 8), "the loss");
  EXPECT_TRUE(record("step").get_bool("skipped", "step"));
  EXPECT_EQ(metadata("step"), "2");
  EXPECT_TRUE(std::ranges::any_of(values(), [](float v) { return !std::isfinite(v); }));
}

TEST_F(Gradients, OfAStepWithoutTargetsAreZero) {
  data::TokenWriter writer(at("masked.h5"), 64, std::nullopt, true, false);
  writer.append(std::vector<std::uint32_t>(100, 1), std::vector<std::uint8_t>(100, 0));
  (void)writer.finish();
  config_.data = at("masked.h5");
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(norm(), 0);
  EXPECT_EQ(metadata("loss") + " " + metadata("grad_norm"), "NaN NaN");
}

TEST_F(Gradients, AFailedWriteEndsTheRun) {
  config_.gradients = at("none/g.safetensors");
  EXPECT_NE(refusal().find("none/g.safetensors: cannot write in "), std::string::npos);
  const auto one = comm::solo();
  config_.gradients = at("g.safetensors");
  int steps = 0;
  state::Hooks hooks;
  hooks.begins = [&] { ++steps, test::write_file(config_.gradients, "made meanwhile"); };
  EXPECT_EQ(error_of([&] { (void)run(config_, *one, hooks); }), config_.gradients + ": exists");
  EXPECT_EQ(test::read_file(config_.gradients), "made meanwhile");
  EXPECT_EQ(steps, 1);
}

}  // namespace
}  // namespace fp8::train
