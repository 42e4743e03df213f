// Division of layers into stages, and the order in which stages compute micro-batches.
#include "fp8/model/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "fp8_test.h"

namespace fp8::model {
namespace {

using test::error_of;

hf::ModelConfig small_model() {
  hf::ModelConfig c;
  c.vocab_size = 48, c.hidden_size = 32, c.intermediate_size = 80, c.num_hidden_layers = 3;
  c.num_attention_heads = 4, c.num_key_value_heads = 2, c.head_dim = 8;
  return c;
}

TEST(Stages, HaveTheirLayersAndTheFirstTheEmbeddingAndTheLastTheHead) {
  const std::vector<int> layers{2, 1, 3};
  const std::vector<std::vector<int>> units{{0, 1, 2}, {3}, {4, 5, 6, 7}};
  for (int s = 0; s < 3; ++s) {
    const StageRange stage = stage_of(layers, s);
    std::vector<int> found;
    for (int unit = 0; unit < 8; ++unit)
      if (stage.has(unit)) found.push_back(unit);
    EXPECT_EQ(found, units[static_cast<std::size_t>(s)]);
    EXPECT_EQ(stage.begins(), s == 0);
    EXPECT_EQ(stage.ends(), s == 2);
  }
  const StageRange all = stage_of(std::vector<int>{6}, 0);
  for (int unit = 0; unit < 8; ++unit) EXPECT_TRUE(all.has(unit));
}

TEST(Stages, AreEvenByCost) {
  const UnitCosts even{0, std::vector<double>(32, 1.0), 0};
  EXPECT_EQ(text_of_stages(divide_layers(even, 4)), "8,8,8,8");
  EXPECT_EQ(text_of_stages(divide_layers(even, 1)), "32");
  EXPECT_EQ(text_of_stages(divide_layers(even, 32)), text_of_stages(std::vector<int>(32, 1)));
  const UnitCosts with_head{0, std::vector<double>(32, 1.0), 2};
  EXPECT_EQ(text_of_stages(divide_layers(with_head, 4)).substr(6), "7");  // 9 layers, or 7 and the head
  EXPECT_EQ(std::ranges::max(stage_costs(with_head, divide_layers(with_head, 4))), 9);
  const UnitCosts heavy{0, std::vector<double>(5, 1.0), 9};
  EXPECT_EQ(text_of_stages(divide_layers(heavy, 2)), "4,1");
  EXPECT_EQ(text_of_stages(divide_layers(heavy, 3)), "2,2,1");
  const UnitCosts embedding{3, std::vector<double>(6, 1.0), 0};
  EXPECT_EQ(text_of_stages(divide_layers(embedding, 3)), "1,2,3");
}

// Against all divisions: none has a smaller largest cost.
TEST(Stages, NoDivisionHasASmallerLargestCost) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(0.1, 4);
  for (int round = 0; round < 50; ++round) {
    UnitCosts costs{uniform(random), {}, uniform(random)};
    for (int i = 0; i < 7; ++i) costs.layers.push_back(uniform(random));
    const double found = std::ranges::max(stage_costs(costs, divide_layers(costs, 3)));
    double least = 1e9;
    for (int a = 1; a < 6; ++a)
      for (int b = 1; a + b < 7; ++b)
        least = std::min(least, std::ranges::max(stage_costs(costs, std::vector<int>{a, b, 7 - a - b})));
    EXPECT_NEAR(found, least, 1e-8);
  }
}

TEST(Stages, MoreThanLayersAreRefused) {
  const UnitCosts costs{0, {1, 1}, 0};
  EXPECT_EQ(error_of([&] { (void)divide_layers(costs, 3); }), "3 stages of 2 layers, and each stage needs one");
}

TEST(Stages, CostsAreTheFlopsOfAllUnits) {
  for (const bool tied : {false, true}) {
    hf::ModelConfig config = small_model();
    config.tie_word_embeddings = tied;
    const std::vector<Parameter> table = parameter_table(config);
    const UnitCosts costs = unit_costs(config, table, 0);
    EXPECT_EQ(std::accumulate(costs.layers.begin(), costs.layers.end(), costs.head),
              training_flops_per_token(config, table));
    EXPECT_EQ(costs.head, 6.0 * static_cast<double>(config.vocab_size * config.hidden_size));
  }
}

TEST(Stages, TableOfAStageHasTheParametersOfItsUnits) {
  const hf::ModelConfig config = small_model();
  const std::vector<Parameter> table = parameter_table(config);
  std::vector<int> layers(static_cast<std::size_t>(config.num_hidden_layers), 1);
  std::size_t count = 0;
  for (int s = 0; s < std::ssize(layers); ++s) {
    const std::vector<Parameter> own = table_of_stage(table, stage_of(layers, s));
    count += own.size();
    for (const Parameter& p : own) EXPECT_TRUE(stage_of(layers, s).has(p.unit));
  }
  EXPECT_EQ(count, table.size());
}

std::string text_of(const std::vector<StageAction>& actions) {
  std::string text;
  for (const StageAction& a : actions)
    text += (text.empty() ? "" : " ") + std::string(a.backward ? "B" : "F") + std::to_string(a.micro_batch);
  return text;
}

TEST(Schedule, IsOneForwardOneBackward) {
  EXPECT_EQ(text_of(stage_schedule(1, 0, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(text_of(stage_schedule(3, 0, 4)), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text_of(stage_schedule(3, 1, 4)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text_of(stage_schedule(3, 2, 4)), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(text_of(stage_schedule(4, 0, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(text_of(stage_schedule(4, 3, 1)), "F0 B0");
}

TEST(Schedule, HoldsAtMostOneMicroBatchForEachStageThatFollows) {
  for (int stages = 1; stages <= 8; ++stages)
    for (int count = 1; count <= 12; ++count)
      for (int s = 0; s < stages; ++s) {
        int held = 0, most = 0;
        std::vector<int> forward, backward;
        for (const StageAction& a : stage_schedule(stages, s, count)) {
          held += a.backward ? -1 : 1;
          most = std::max(most, held);
          ASSERT_GE(held, 0);
          (a.backward ? backward : forward).push_back(a.micro_batch);
        }
        EXPECT_EQ(most, std::min(count, stages - s)) << stages << " " << s << " " << count;
        std::vector<int> all(static_cast<std::size_t>(count));
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(forward, all);
        EXPECT_EQ(backward, all);
      }
}

// A stage of the next test, which is at the exchange after action `at`, from -1.
struct Exchanges {
  std::vector<StageAction> actions;
  int at = -1;
};

// GPUs exchange messages in groups: what an action sends together with what the next one receives, and nothing else
// goes on until all messages of the group have arrived. Stages reach their exchanges in any order of time.
TEST(Schedule, GroupedExchangesCannotDeadlock) {
  std::mt19937 random(3);
  for (int stages = 2; stages <= 7; ++stages)
    for (int count = 1; count <= 10; ++count)
      for (int round = 0; round < 4; ++round) {
        std::vector<Exchanges> all;
        for (int s = 0; s < stages; ++s) all.push_back({stage_schedule(stages, s, count)});
        const auto exchange_of = [&](int s, const StageAction& a, bool sends) {  // number of the exchange, or -2
          if (s < 0 || s >= stages) return -2;
          const auto& actions = all[static_cast<std::size_t>(s)].actions;
          return static_cast<int>(std::ranges::find(actions, a) - actions.begin()) - (sends ? 0 : 1);
        };
        const auto reached = [&](int s, int exchange) {
          return exchange == -2 || all[static_cast<std::size_t>(s)].at >= exchange;
        };
        const auto complete = [&](int s) {
          const Exchanges& own = all[static_cast<std::size_t>(s)];
          bool done = true;
          if (own.at >= 0) {  // what it sends
            const StageAction a = own.actions[static_cast<std::size_t>(own.at)];
            const int to = a.backward ? s - 1 : s + 1;
            done = done && reached(to, exchange_of(to, a, false));
          }
          if (own.at + 1 < std::ssize(own.actions)) {  // what it receives
            const StageAction a = own.actions[static_cast<std::size_t>(own.at + 1)];
            const int from = a.backward ? s + 1 : s - 1;
            done = done && reached(from, exchange_of(from, a, true));
          }
          return done;
        };
        std::vector<int> order(static_cast<std::size_t>(stages));
        std::iota(order.begin(), order.end(), 0);
        for (bool moved = true; moved;) {
          moved = false;
          std::ranges::shuffle(order, random);
          for (const int s : order)
            if (all[static_cast<std::size_t>(s)].at < 2 * count && complete(s))
              ++all[static_cast<std::size_t>(s)].at, moved = true;
        }
        for (const Exchanges& own : all) EXPECT_EQ(own.at, 2 * count) << stages << " stages, " << count;
      }
}

TEST(Schedule, BubbleOfEvenStagesIsThatOfTheFormula) {
  for (int stages = 1; stages <= 6; ++stages)
    for (int count = 1; count <= 12; ++count) {
      const std::vector<double> costs(static_cast<std::size_t>(stages), 2.5);
      EXPECT_NEAR(expected_bubble(costs, count), (stages - 1.0) / (count + stages - 1.0), 1e-12);
    }
  // Stages of 1 and 3: the second works 24 of 26 with 2 micro-batches of 12, the first 6.
  EXPECT_NEAR(expected_bubble(std::vector<double>{1, 3}, 2), 1 - 24.0 / (2 * 21), 1e-12);
}

}  // namespace
}  // namespace fp8::model
