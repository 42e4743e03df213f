// Mixtures of experts on several ranks: losses, norm and every gradient are those of one rank however the samples, the
// parameters and the experts are divided. A mixture of seven experts, of which a token has three, with a dense layer
// between sparse ones; some experts have no rows.
#include <array>
#include <map>
#include <string_view>
#include <tuple>

#include "gradient_files.h"

namespace fp8::train {
namespace {

hf::ModelConfig mixture() {
  return hf::parse_config(json::parse(R"({"model_type": "qwen3_moe", "vocab_size": 64, "hidden_size": 32,
    "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 8, "head_dim": 2, "max_position_embeddings": 64, "num_experts": 7,
    "num_experts_per_tok": 3, "norm_topk_prob": false, "mlp_only_layers": [1], "tie_word_embeddings": false})",
                                      "mixture"),
                          "mixture");
}

// A way to divide a step. `rows`: 1 if a layer has less room than rows, so that they are computed in passes.
struct Way {
  int zero, accumulation, recompute, data, lora, balance, rows;
};
constexpr std::array<const char*, 3> kData{"joined", "separate", "packed"};

// Every pair of two values of zero, recompute and data, and each value of the other settings in a row with each of
// them.
std::vector<Way> ways() {
  constexpr std::string_view kBalanced = "001110010";
  std::vector<Way> all;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j)
      all.push_back({i + 1, (i + 2 * j) % 3 == 0 ? 1 : 2, j, (i + j) % 3, i == j || (i == 0 && j == 1) ? 1 : 0,
                     kBalanced[3 * i + j] == '1' ? 1 : 0, (2 * i + j) % 3 == 0 ? 1 : 0});
  return all;
}

// What is the same in a way and on one rank.
void apply_task(RunConfig& c, const GradientFiles& files, const Way& way) {
  c.data = files.at(std::string(kData[static_cast<std::size_t>(way.data)]) + ".h5");
  if (way.lora != 0) c.lora.rank = 4;
  if (way.balance != 0) c.aux_loss = 0.5, c.z_loss = 0.1;
}

// A balancing loss takes the shares of each accumulation step, so that one rank accumulates as often.
const std::string& reference_of(const GradientFiles& files, const Way& way,
                                std::map<std::tuple<int, int, int, int>, std::string>& made) {
  const int accumulation = way.balance != 0 ? way.accumulation : 1;
  std::string& path = made[{way.data, way.lora, way.balance, accumulation}];
  if (!path.empty()) return path;
  const std::string name = "one-" + std::to_string(made.size());
  RunConfig c = files.config(name);
  apply_task(c, files, way);
  c.grad_accumulation = accumulation;
  c.batch_size = kGlobalBatch / accumulation;
  if (world().rank() == 0) {
    EXPECT_EQ(run(c, *comm::solo(), {}), Exit::done);
  }
  world().barrier();
  return path = c.gradients;
}

// Every way is in some run, and every mesh has a third of them; with FP8_LONG each mesh has all.
TEST(Mixtures, HaveTheGradientsOfOneRankOnEveryMesh) {
  const GradientFiles files(mixture());
  std::map<std::tuple<int, int, int, int>, std::string> references;
  for (const int ranks : {1, 2, 3, 4}) {
    const int size = world().size();
    if (ranks > size || (ranks < size && ranks != 3)) continue;  // three ranks of four, else all
    const auto group = world().split(world().rank() < ranks ? 0 : 1, world().rank(), "");
    std::vector<std::pair<int, int>> meshes;
    for (int replicas = 1; replicas <= ranks; ++replicas)
      for (int ep = 1; ep <= ranks; ++ep)
        if (ranks % replicas == 0 && ranks / replicas % ep == 0) meshes.emplace_back(replicas, ep);
    const std::vector<Way> all = ways();
    const bool every = meshes.size() == 1 || comm::long_run(static_cast<int>(meshes.size() * all.size() * 2 / 3));
    for (std::size_t number = 0; number < all.size(); ++number) {
      const Way& way = all[number];
      const std::string& reference = reference_of(files, way, references);
      for (std::size_t mesh = 0; mesh < meshes.size(); ++mesh) {
        if (!every && third_of(number) != mesh % 3) continue;
        const auto [replicas, ep] = meshes[mesh];
        const std::string name = std::to_string(ranks) + "-" + std::to_string(replicas) + "-" + std::to_string(ep) +
                                 "-" + std::to_string(way.zero) + std::to_string(way.recompute);
        RunConfig c = files.config(name);
        apply_task(c, files, way);
        c.dp_replicate = replicas, c.ep = ep, c.expert_rows = way.rows != 0 ? 1 : 2;
        c.zero = way.zero, c.grad_accumulation = way.accumulation;
        c.precision.execution.recompute = static_cast<model::Recompute>(way.recompute);
        c.batch_size = kGlobalBatch / ranks / way.accumulation;
        if (world().rank() < ranks) {
          EXPECT_EQ(run(c, *group, {}), Exit::done);
        }
        world().barrier();
        if (world().rank() != 0) continue;
        SCOPED_TRACE(name + ", accumulation " + std::to_string(way.accumulation) + ", " +
                     kData[static_cast<std::size_t>(way.data)] + (way.lora != 0 ? ", adapters" : "") +
                     (way.balance != 0 ? ", balanced" : "") + (way.rows != 0 ? ", passes" : ""));
        for (const char* key : {"loss", "grad_norm"})
          EXPECT_NEAR(metadata(c.gradients, key) / metadata(reference, key), 1, 1e-6) << key;
        EXPECT_LE(distance(reference, c.gradients), 1e-5);
      }
    }
  }
}

// The scales of this recipe are those of rows, so that FP8 computes the same on any mesh but for codes that a last bit
// changes.
TEST(Mixtures, ComputeTheSameInFp8WithScalesOfRows) {
  const GradientFiles files(mixture());
  const auto config = [&](const std::string& name) {
    RunConfig c = files.config(name);
    c.precision.precision = settings::Precision::fp8, c.precision.recipe = "rowwise_with_gw_hp";
    return c;
  };
  RunConfig one = config("one");
  one.batch_size = kGlobalBatch;
  if (world().rank() == 0) {
    EXPECT_EQ(run(one, *comm::solo(), {}), Exit::done);
  }
  world().barrier();
  for (int ep = 1; ep <= world().size(); ++ep) {
    if (world().size() % ep != 0) continue;
    RunConfig c = config("fp8-" + std::to_string(ep));
    c.ep = ep, c.batch_size = kGlobalBatch / world().size();
    EXPECT_EQ(run(c, world(), {}), Exit::done);
    if (world().rank() != 0) continue;
    EXPECT_NEAR(metadata(c.gradients, "loss") / metadata(one.gradients, "loss"), 1, 1e-5) << ep;
    EXPECT_NEAR(metadata(c.gradients, "grad_norm") / metadata(one.gradients, "grad_norm"), 1, 1e-4) << ep;
    EXPECT_LE(distance(one.gradients, c.gradients), 5e-3) << ep;
  }
}

}  // namespace
}  // namespace fp8::train
