// Text that is generated while a model is trained: it changes no bit of the run, and is that of the checkpoint.
#include "sample.h"

#include <algorithm>

#include "fp8/ckpt/run_folder.h"
#include "fp8/convert/open.h"
#include "fp8/generate/generator.h"
#include "run_fixture.h"

namespace fp8::train {
namespace {

// The vocabulary of the small model has the bytes up to '?'.
class Sample : public Run {
 protected:
  Sample() {
    (void)model::initialize(small_model(), at("m.h5"), {.force = true, .tokenizer_id = "bytes"});
    config_.schedule.lr = 3e-2;
  }
  void sampling(std::int64_t every) {
    config_.sample_every = every, config_.sample_prompt = "12 3", config_.sample_tokens = 9;
  }
  // The records of samples without their times.
  std::vector<std::string> samples() const {
    std::vector<std::string> all;
    for (const json::Value& r : records_) {
      if (r.as_object().get_string("type", "record") != "sample") continue;
      json::Value record = r;
      record.as_object().erase("seconds");
      record.as_object().erase("time");
      all.push_back(json::dump(record));
    }
    return all;
  }
  // The files of the last checkpoint.
  std::string checkpoint() const {
    const std::string folder = config_.out + "/" + ckpt::step_name(config_.steps) + "/";
    return read_file(folder + "rank-00000-of-00001.h5") + read_file(folder + "manifest.json");
  }
};

TEST_F(Sample, FollowsTheStepsAskedFor) {
  config_.steps = 5, config_.save_every = 2;
  sampling(2);
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(story(),
            "run, step 1, step 2, sample 2, checkpoint 2, step 3, step 4, sample 4, checkpoint 4, step 5, sample 5, "
            "checkpoint 5, end 5, ");
  const json::Object& record = records_[3].as_object();
  EXPECT_EQ(record.get_string("prompt", "sample"), "12 3");
  EXPECT_EQ(record.at("ids").as_array().size(), 9U);
  std::string text;
  for (const json::Value& id : record.at("ids").as_array()) text += static_cast<char>(id.as_int());
  EXPECT_EQ(record.get_string("text", "sample"), text);
}

// Recipe delayed included, whose checkpoints hold histories of amaxes, and adapters with dropout.
TEST_F(Sample, ChangesNothing) {
  struct Case {
    settings::Precision precision;
    const char* recipe;
    bool adapters;
  };
  for (const auto& [precision, recipe, adapters] :
       {Case{settings::Precision::fp32, "", false}, Case{settings::Precision::bf16, "", false},
        Case{settings::Precision::fp8, "tensorwise", false}, Case{settings::Precision::fp8, "delayed", false},
        Case{settings::Precision::fp8, "blockwise", true}}) {
    SCOPED_TRACE(recipe);
    config_.precision = {};
    config_.precision.precision = precision;
    config_.precision.execution.activation = precision == settings::Precision::fp32 ? DType::f32 : DType::bf16;
    if (*recipe != 0) config_.precision.recipe = recipe;
    config_.lora = {};
    if (adapters) config_.lora.rank = 4, config_.lora.dropout = 0.25;
    const std::string name = std::string(name_of(precision)) + recipe;
    config_.out = at(name), config_.sample_every = 0;
    EXPECT_EQ(go(), Exit::done);
    EXPECT_TRUE(samples().empty());
    const std::string without = checkpoint(), loss = losses();
    config_.out = at(name + ".sampled");
    sampling(1);
    EXPECT_EQ(go(), Exit::done);
    EXPECT_EQ(samples().size(), 4U);
    EXPECT_EQ(losses(), loss);
    EXPECT_TRUE(checkpoint() == without);
  }
}

TEST_F(Sample, IsTheTextOfTheCheckpoint) {
  config_.precision.precision = settings::Precision::fp32, config_.precision.execution.activation = DType::f32;
  sampling(100);
  config_.sample_tokens = 1000;  // more than the end of the context, 64 tokens
  EXPECT_EQ(go(), Exit::done);
  generate::Generator generator(convert::open_model(at("run/step-00000004")), {DType::f32, nullptr});
  generate::Sampler sampler({.temperature = 0});
  const generate::Codec bytes;
  const auto text =
      generator.run(bytes.encode("12 3"), {.max_tokens = 1000}, &bytes, sampler, [](const generate::NewToken&) {});
  EXPECT_EQ(text.ids.size(), 60U);
  const auto last = std::ranges::find_if(records_, [](const json::Value& r) { return r.as_object().contains("ids"); });
  ASSERT_NE(last, records_.end());
  EXPECT_EQ(last->as_object().at("ids").as_array(), json::Array(text.ids.begin(), text.ids.end()));
  EXPECT_EQ(last->as_object().get_string("text", "sample"), text.text);
}

// The text is the same after another start, which may begin or end to sample.
TEST_F(Sample, ResumedRunsSampleTheSame) {
  sampling(2);
  EXPECT_EQ(go(), Exit::done);
  const std::vector<std::string> whole = samples();
  const std::string without = checkpoint();
  config_.out = at("resumed"), config_.sample_every = 0;
  EXPECT_EQ(go(2), Exit::again);
  sampling(2);
  EXPECT_EQ(go(), Exit::done);
  ASSERT_EQ(whole.size(), 2U);
  EXPECT_EQ(samples(), std::vector<std::string>{whole.back()});
  EXPECT_TRUE(checkpoint() == without);
}

TEST_F(Sample, EndsAtAnEndToken) {
  sampling(4);
  EXPECT_EQ(go(), Exit::done);
  const json::Array ids = records_[5].as_object().at("ids").as_array();
  const std::int64_t third = ids[2].as_int();
  const auto first = std::ranges::find(ids, json::Value(third)) - ids.begin();
  json::Value config = json::parse(json::dump(hf::to_json(small_model())), "config");
  config.as_object().set("eos_token_id", third);
  (void)model::initialize(hf::parse_config(config, "config"), at("m.h5"), {.force = true, .tokenizer_id = "bytes"});
  config_.out = at("ended");
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(records_[5].as_object().at("ids").as_array(), json::Array(ids.begin(), ids.begin() + first + 1));
}

// Its memory is part of the plan, also where the text is longer than a sequence of the data.
TEST_F(Sample, MemoryIsPlanned) {
  const auto one = comm::solo();
  const shard::ModelSpec spec{small_model(), small_table(small_model()), {}};
  const shard::BatchShape step{1, 2, {}};
  EXPECT_GT(shard::plan_memory({}, comm::Mesh(*one), spec, step, step, {1, 1024, {}}).bytes,
            shard::plan_memory({}, comm::Mesh(*one), spec, step, step).bytes);
  config_.seq_length = 2, config_.batch_size = 1;
  sampling(1);
  config_.sample_prompt = std::string(55, '7'), config_.sample_tokens = 2;
  EXPECT_EQ(go(), Exit::done);
  EXPECT_EQ(samples().size(), 4U);
}

TEST_F(Sample, StepsWithoutTargetsGiveNoScales) {
  data::TokenWriter writer(at("masked.h5"), 64, std::nullopt, true, false);
  writer.append(std::vector<std::uint32_t>(200, 3), std::vector<std::uint8_t>(200, 0));
  (void)writer.finish();
  config_.data = at("masked.h5"), config_.steps = 1, config_.documents = data::DocumentMode::joined;
  config_.precision.precision = settings::Precision::fp8, config_.precision.recipe = "delayed";
  sampling(1);
  EXPECT_EQ(go(), Exit::done);
  EXPECT_TRUE(samples().empty());
  EXPECT_HOLDS(notes_, "no sample: no step had targets yet");
}

TEST_F(Sample, WhatCannotBeSampledIsRefused) {
  sampling(1);
  config_.sample_prompt.reset();
  EXPECT_EQ(refusal(), "--sample-every: needs --sample-prompt");
  config_.sample_prompt = "a";
  EXPECT_EQ(refusal(), "--sample-prompt: token 97 is not in the model's vocabulary of 64");
  config_.sample_prompt = "";
  EXPECT_EQ(refusal(), "--sample-prompt: no tokens");
  config_.sample_prompt = std::string(64, '1');
  EXPECT_EQ(refusal(), "--sample-prompt: 64 tokens leave no room in the model's context of 64");
  (void)model::initialize(small_model(), at("m.h5"), {.force = true});
  config_.sample_prompt = "1";
  EXPECT_HOLDS(refusal(), "--sample-prompt: " + at("m.h5") + " has no tokenizer.json, and the data is not known to be");
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

}  // namespace
}  // namespace fp8::train
