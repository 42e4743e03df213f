// Tensor parallelism: losses, norm and every gradient are those of one rank for each family of models and each way to
// divide ranks, samples, parameters and linears; and runs in bf16 and FP8 stay as near to one rank's as another order
// of sums does.
#include <array>
#include <functional>
#include <map>

#include "gradient_files.h"

namespace fp8::train {
namespace {

// A model, and what differs from small_model().
struct Family {
  const char* name;
  const char* config;
};
constexpr const char* kLlama = R"({"model_type": "llama", "vocab_size": 65, "hidden_size": 32, "intermediate_size": 80,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 64, "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true})";
constexpr const char* kQwen2 = R"({"model_type": "qwen2", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1,
    "max_position_embeddings": 64, "tie_word_embeddings": false})";
constexpr const char* kQwen3 = R"({"model_type": "qwen3", "vocab_size": 67, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
    "max_position_embeddings": 64, "tie_word_embeddings": false})";
constexpr const char* kMixture = R"({"model_type": "qwen3_moe", "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 4, "max_position_embeddings": 64, "num_experts": 7,
    "num_experts_per_tok": 3, "norm_topk_prob": false, "mlp_only_layers": [1], "tie_word_embeddings": false})";
// Blocks of 128 columns of its heads are on several ranks.
constexpr const char* kWide = R"({"model_type": "qwen3", "vocab_size": 64, "hidden_size": 64, "intermediate_size": 560,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 48,
    "max_position_embeddings": 64, "tie_word_embeddings": false})";
constexpr std::array<Family, 4> kFamilies{
    {{"llama", kLlama}, {"qwen2", kQwen2}, {"qwen3", kQwen3}, {"mixture", kMixture}}};

hf::ModelConfig model_of(const char* text) { return hf::parse_config(json::parse(text, "model"), "model"); }

// A way to divide a step of a mesh with `tp` ranks for each linear.
struct Way {
  int tp, replicas, ep, zero, accumulation, recompute, lora;
  const char* data;
};

// Each mesh with every stage and kind of data. Of several meshes each has one that is chosen for it in this family, so
// that it has all in three families; with FP8_LONG all are tested. Experts have meshes of their own.
std::vector<Way> ways(int ranks, int family, bool experts) {
  std::vector<Way> all, some;
  int mesh = 0;
  for (const int tp : {2, 4}) {
    if (ranks % tp != 0) continue;
    for (int replicas = 1; replicas <= ranks / tp; ++replicas)
      for (const int ep : {1, 2, 4}) {
        const int copy = ranks / replicas;
        if (ranks / tp % replicas != 0 || copy % ep != 0 || (ep > 1 && !experts)) continue;
        for (int each = 0; each < 3; ++each) {
          const bool chosen = each == (mesh + family) % 3;
          const bool lora = chosen && (experts ? (mesh + 1) / 2 % 2 == 1 : mesh == family);
          all.push_back({tp, replicas, ep, 1 + each, 1 + (mesh + family + (chosen ? 0 : 1)) % 2, (mesh + each) % 3,
                         lora ? 1 : 0,
                         std::array{"joined.h5", "separate.h5", "packed.h5"}[static_cast<std::size_t>(each)]});
          if (chosen) some.push_back(all.back());
        }
        ++mesh;
      }
  }
  return mesh < 3 || comm::long_run(static_cast<int>(all.size() - some.size())) ? all : some;
}

using Task = std::function<void(RunConfig&)>;

// The file with the gradients of one rank.
std::string reference(const GradientFiles& files, const std::string& name, const Task& task) {
  RunConfig c = files.config("one-" + name);
  c.batch_size = kGlobalBatch;
  task(c);
  if (world().rank() == 0) {
    EXPECT_EQ(run(c, *comm::solo(), {}), Exit::done);
  }
  world().barrier();
  return c.gradients;
}

// The file with those of a mesh of all ranks.
std::string divided(const GradientFiles& files, const std::string& name, const Way& way, const Task& task) {
  RunConfig c = files.config(name);
  c.tp = way.tp, c.dp_replicate = way.replicas, c.ep = way.ep, c.zero = way.zero;
  c.grad_accumulation = way.accumulation,
  c.precision.execution.recompute = static_cast<model::Recompute>(way.recompute);
  c.batch_size = kGlobalBatch / (world().size() / way.tp) / way.accumulation;
  task(c);
  EXPECT_EQ(run(c, world(), {}), Exit::done);
  world().barrier();
  return c.gradients;
}

class Tensor : public testing::TestWithParam<int> {};

TEST_P(Tensor, GradientsAreThoseOfOneRank) {
  const Family& family = kFamilies.at(static_cast<std::size_t>(GetParam()));
  const bool experts = std::string(family.name) == "mixture";
  const GradientFiles files(model_of(family.config));
  std::map<std::string, std::string> references;
  int number = 0;
  for (const Way& way : ways(world().size(), GetParam(), experts)) {
    const Task task = [&](RunConfig& c) {
      c.data = files.at(way.data);
      if (way.lora != 0) c.lora.rank = 4, c.lora.dropout = experts ? 0 : 0.25;
      if (experts) c.aux_loss = 0.5, c.z_loss = 0.1;
    };
    const std::string of_task =
        std::string(way.data) + std::to_string(way.lora) + (experts ? "-" + std::to_string(way.accumulation) : "");
    std::string& one = references[of_task];
    if (one.empty())
      one = reference(files, of_task, [&](RunConfig& c) {
        task(c);
        if (experts) c.grad_accumulation = way.accumulation, c.batch_size = kGlobalBatch / way.accumulation;
      });
    const std::string found = divided(files, "d" + std::to_string(number++), way, task);
    if (world().rank() != 0) continue;
    SCOPED_TRACE(std::string(way.data) + ", tp " + std::to_string(way.tp) + ", replicas " +
                 std::to_string(way.replicas) + ", ep " + std::to_string(way.ep) + ", zero " +
                 std::to_string(way.zero) + ", accumulation " + std::to_string(way.accumulation) + ", recompute " +
                 std::to_string(way.recompute) + (way.lora != 0 ? ", adapters" : ""));
    for (const char* key : {"loss", "grad_norm"})
      EXPECT_NEAR(metadata(found, key) / metadata(one, key), 1, 1e-6) << key;
    EXPECT_LE(distance(one, found), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Tensor, testing::Range(0, static_cast<int>(kFamilies.size())), [](const auto& of) {
  return std::string(kFamilies.at(static_cast<std::size_t>(of.param)).name);
});

struct Precision {
  const char* recipe;  // empty: bf16
  DType activations;
  double gradient;  // largest distance of a gradient
  // Sums of FP8; an H100 truncates those over each part of a contraction, so that results differ about as bf16 ones do.
  gemm::Accumulation sums = gemm::Accumulation::f32;
  bool chosen = false;  // with choose_linears()
};

// Linears of a layer have different recipes, some of their GEMMs run in bf16, and the LM head runs in FP8.
void choose_linears(RunConfig& c) {
  c.precision.linear_recipes = {{"*.self_attn.*", "tensorwise"}, {"*.down_proj", "blockwise"}};
  c.precision.selection.gemms = {{"*.o_proj", {.forward = true, .dgrad = false, .wgrad = true}},
                                 {"*.down_proj", {.forward = false, .dgrad = true, .wgrad = true}}};
  c.precision.selection.lm_head = true;
}

// Codes and scales are those of one rank, so that only the order of sums differs. With activations in f32 it changes a
// code seldom; an amax of one rank's part would change nearly all of them.
class TensorPrecision : public testing::TestWithParam<Precision> {};

TEST_P(TensorPrecision, StaysNearOneRank) {
  if (world().size() == 1) GTEST_SKIP() << "for several ranks";
  const GradientFiles files(model_of(kWide));
  const Task task = [](RunConfig& c) {
    const bool fp8 = *GetParam().recipe != 0;
    c.precision.precision = fp8 ? settings::Precision::fp8 : settings::Precision::bf16;
    c.precision.execution.activation = GetParam().activations;
    if (fp8) c.precision.recipe = GetParam().recipe;
    c.precision.accumulation = GetParam().sums;
    if (GetParam().chosen) choose_linears(c);
  };
  const std::string one = reference(files, "one", task);
  const std::string found = divided(files, "tp", {world().size(), 1, 1, 1, 1, 0, 0, "joined.h5"}, task);
  if (world().rank() != 0) return;
  const bool narrow = GetParam().activations == DType::bf16 || GetParam().sums == gemm::Accumulation::hopper;
  EXPECT_NEAR(metadata(found, "loss") / metadata(one, "loss"), 1, narrow ? 1e-3 : 1e-6);
  EXPECT_NEAR(metadata(found, "grad_norm") / metadata(one, "grad_norm"), 1, narrow ? 1e-2 : 1e-3);
  EXPECT_LE(distance(one, found), GetParam().gradient);
}

INSTANTIATE_TEST_SUITE_P(Recipes, TensorPrecision,
                         testing::Values(Precision{"", DType::bf16, 0.04}, Precision{"tensorwise", DType::bf16, 0.3},
                                         Precision{"rowwise", DType::bf16, 0.15},
                                         Precision{"tensorwise", DType::f32, 0.01},
                                         Precision{"current", DType::f32, 0.01}, Precision{"delayed", DType::f32, 0.06},
                                         Precision{"rowwise", DType::f32, 1e-3},
                                         Precision{"rowwise_with_gw_hp", DType::f32, 1e-3},
                                         Precision{"blockwise", DType::f32, 1e-3}, Precision{"mxfp8", DType::f32, 1e-3},
                                         Precision{"rowwise", DType::f32, 1e-2, gemm::Accumulation::f32, true},
                                         Precision{"rowwise", DType::f32, 0.2, gemm::Accumulation::hopper},
                                         Precision{"tensorwise", DType::f32, 0.3, gemm::Accumulation::hopper}),
                         [](const auto& of) {
                           return (*of.param.recipe == 0 ? std::string("bf16") : of.param.recipe) +
                                  (of.param.sums == gemm::Accumulation::hopper ? "_hopper" : "") +
                                  (of.param.chosen ? "_chosen" : "") +
                                  (of.param.activations == DType::f32 ? "_f32" : "");
                         });

}  // namespace
}  // namespace fp8::train
