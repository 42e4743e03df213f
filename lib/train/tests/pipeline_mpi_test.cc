// Stages of layers: alone they give the bits of one rank in every precision, samples and statistics included; with
// other dimensions, tied embeddings, experts, adapters and documents they give its losses, norm and gradients. Memory
// is what was planned for a stage.
#include <array>
#include <functional>
#include <numeric>

#include "gradient_files.h"

namespace fp8::train {
namespace {

constexpr const char* kUntied = R"({"model_type": "qwen3", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 64, "tie_word_embeddings": false})";
constexpr const char* kTied = R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 80,
    "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 64, "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true})";
constexpr const char* kMixture = R"({"model_type": "qwen3_moe", "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 4, "max_position_embeddings": 64, "num_experts": 7,
    "num_experts_per_tok": 3, "norm_topk_prob": false, "mlp_only_layers": [1], "tie_word_embeddings": false})";

hf::ModelConfig model_of(const char* text) { return hf::parse_config(json::parse(text, "model"), "model"); }

using Task = std::function<void(RunConfig&)>;

// Losses and norms of the steps and tokens of the samples on rank 0, and the first and the last record.
struct Found {
  std::string numbers;
  json::Value run, end;
};

// Trains on all ranks of `ranks`; writes the gradients of the first step.
Found train(RunConfig c, comm::Communicator& ranks, const Task& task) {
  task(c);
  Found found;
  state::Hooks hooks;
  hooks.record = [&](const json::Value& r) {
    const std::string type = r.as_object().get_string("type", "record");
    if (type == "run") found.run = r;
    if (type == "end") found.end = r;
    if (type != "step" && type != "eval" && type != "sample") return;
    for (const char* key : {"loss", "grad_norm", "ids"})
      if (const json::Value* value = r.as_object().find(key)) found.numbers += json::dump(*value) + " ";
  };
  hooks.note = hooks.warning = hooks.progress = [](const std::string&) {};
  EXPECT_EQ(run(c, ranks, hooks), Exit::done);
  return found;
}

// The same task on one rank, on rank 0 of the job.
Found reference(const GradientFiles& files, const std::string& name, const Task& task) {
  Found found;
  if (world().rank() == 0) found = train(files.config(name), *comm::solo(), task);
  world().barrier();
  return found;
}

struct Precision {
  const char* recipe;  // "fp32", "bf16" or a recipe
  std::int64_t micro_batches;
  model::Recompute recompute;
};

class Stages : public testing::TestWithParam<Precision> {};

TEST_P(Stages, AloneHaveTheBitsOfOneRank) {
  if (world().size() == 1) GTEST_SKIP() << "for several ranks";
  const GradientFiles files(model_of(kUntied));
  const Task task = [&](RunConfig& c) {
    const std::string recipe = GetParam().recipe;
    c.precision.precision = recipe == "fp32"   ? settings::Precision::fp32
                            : recipe == "bf16" ? settings::Precision::bf16
                                               : settings::Precision::fp8;
    c.precision.execution.activation = recipe == "fp32" ? DType::f32 : DType::bf16;
    if (c.precision.precision == settings::Precision::fp8) c.precision.recipe = recipe, c.precision.delayed.history = 2;
    c.grad_accumulation = GetParam().micro_batches, c.batch_size = 2, c.steps = 3;
    c.precision.execution.recompute = GetParam().recompute;
    c.eval_data = c.data, c.eval_every = 3, c.eval_batches = 2;
    c.sample_every = 3, c.sample_prompt = "12 3", c.sample_tokens = 9;
    if (c.precision.precision == settings::Precision::fp8) c.stats_every = 3;
  };
  const Found one = reference(files, "one", task);
  const Found several = train(files.config("stages"), world(), [&](RunConfig& c) {
    task(c);
    c.pp = world().size();
  });
  if (world().rank() != 0) return;
  EXPECT_EQ(several.numbers, one.numbers);
  EXPECT_EQ(distance(files.at("one.safetensors"), files.at("stages.safetensors")), 0);
  if (std::string(GetParam().recipe) != "fp32" && std::string(GetParam().recipe) != "bf16") {
    EXPECT_EQ(read_file(files.at("run-stages/tensors.jsonl")), read_file(files.at("run-one/tensors.jsonl")));
  }
  const auto arena = [](const json::Value& record, const char* key) {
    const json::Object& bytes = record.as_object().at(key).as_object();
    return bytes.get_int("total", key) - bytes.get_int("matmul scratch", key) -
           (bytes.contains("program") ? bytes.get_int("program", key) : 0);
  };
  EXPECT_EQ(arena(several.end, "memory_used"), arena(several.run, "memory_plan"));
}

INSTANTIATE_TEST_SUITE_P(
    Precisions, Stages,
    testing::Values(Precision{"fp32", 4, model::Recompute::none}, Precision{"bf16", 1, model::Recompute::selective},
                    Precision{"tensorwise", 4, model::Recompute::full}, Precision{"current", 3, model::Recompute::none},
                    Precision{"delayed", 5, model::Recompute::none}, Precision{"rowwise", 2, model::Recompute::none},
                    Precision{"rowwise_with_gw_hp", 4, model::Recompute::selective},
                    Precision{"blockwise", 4, model::Recompute::none}, Precision{"mxfp8", 6, model::Recompute::none}),
    [](const auto& of) { return std::string(of.param.recipe); });

// A model and a way to divide a step.
struct Way {
  const char* model;
  int ranks, pp, replicas, tp, ep, zero;
  const char* data;
  int lora;
};

class PipelineMesh : public testing::TestWithParam<Way> {};

TEST_P(PipelineMesh, GradientsAreThoseOfOneRank) {
  const Way& way = GetParam();
  if (world().size() != way.ranks) GTEST_SKIP() << "for " << way.ranks << " ranks";
  const GradientFiles files(model_of(way.model));
  const bool experts = way.model == kMixture;
  const Task task = [&](RunConfig& c) {
    c.data = files.at(way.data), c.grad_accumulation = 3, c.batch_size = kGlobalBatch / 3;
    if (way.lora != 0) c.lora.rank = 4, c.lora.dropout = experts ? 0 : 0.25;
    if (experts) c.aux_loss = 0.5, c.z_loss = 0.1;
  };
  (void)reference(files, "one", task);
  (void)train(files.config("mesh"), world(), [&](RunConfig& c) {
    task(c);
    c.pp = way.pp, c.dp_replicate = way.replicas, c.tp = way.tp, c.ep = way.ep, c.zero = way.zero, c.paranoid = 1;
    c.batch_size /= way.ranks / way.pp / way.tp;
  });
  if (world().rank() != 0) return;
  const std::string one = files.at("one.safetensors"), mesh = files.at("mesh.safetensors");
  for (const char* key : {"loss", "grad_norm"}) EXPECT_NEAR(metadata(mesh, key) / metadata(one, key), 1, 1e-6) << key;
  EXPECT_LE(distance(one, mesh), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, PipelineMesh,
    testing::Values(Way{kTied, 2, 2, 1, 1, 1, 3, "joined.h5", 0}, Way{kTied, 4, 4, 1, 1, 1, 3, "packed.h5", 0},
                    Way{kTied, 4, 2, 2, 1, 1, 2, "separate.h5", 0}, Way{kTied, 4, 2, 1, 2, 1, 1, "joined.h5", 0},
                    Way{kTied, 4, 2, 1, 1, 1, 3, "packed.h5", 1}, Way{kUntied, 4, 2, 1, 1, 1, 1, "separate.h5", 0},
                    Way{kUntied, 2, 2, 1, 1, 1, 3, "joined.h5", 1}, Way{kMixture, 2, 2, 1, 1, 1, 3, "packed.h5", 0},
                    Way{kMixture, 4, 2, 1, 1, 2, 2, "joined.h5", 0}, Way{kMixture, 4, 2, 1, 2, 2, 3, "separate.h5", 0},
                    Way{kMixture, 4, 4, 1, 1, 1, 3, "joined.h5", 1}));

TEST(Pipeline, RecordsHaveTheStagesAndTheBubble) {
  if (world().size() == 1) GTEST_SKIP() << "for several ranks";
  const GradientFiles files(model_of(kUntied));
  const Found found = train(files.config("stages"), world(), [&](RunConfig& c) {
    c.pp = world().size(), c.grad_accumulation = 4;
    c.stages = std::vector<int>(static_cast<std::size_t>(world().size()), 1);
    c.stages.back() = 5 - world().size();
  });
  if (world().rank() != 0) return;
  const json::Array& stages = found.run.as_object().at("stages").as_array();
  ASSERT_EQ(std::ssize(stages), world().size());
  EXPECT_EQ(stages.back().as_object().get_int("layers", "stage"), 5 - world().size());
  for (const json::Value& stage : stages) EXPECT_GT(stage.as_object().get_int("memory", "stage"), 0);
}

}  // namespace
}  // namespace fp8::train
