// Loads of experts on one rank: what a step counts, and what it does not.
#include <gtest/gtest.h>

#include <array>

#include "expert_load_cases.h"
#include "fp8_test.h"

namespace fp8::shard {
namespace {

TEST(ExpertLoad, IsThatOfTheReference) {
  for (const int micro_batches : {1, 2, 3}) check_expert_load(*comm::solo(), micro_batches);
}

// A step whose factors are 0 has loads, but neither losses nor gradients.
TEST(ExpertLoad, WithoutFactorsThereAreNoLosses) {
  LoadKit kit;
  kit.load.begin({0, 0, 5, nullptr});
  kit.route(router_logits(0, 0, 0, kit.experts()));
  const model::RoutingGradients none = kit.load.gradients(kit.ctx);
  EXPECT_TRUE(none.aux.empty());
  EXPECT_EQ(none.z, 0);
  const RoutingResult result = kit.load.finish();
  EXPECT_EQ(result.aux_loss, 0);
  EXPECT_EQ(result.z_loss, 0);
  EXPECT_EQ(std::accumulate(result.rows.begin(), result.rows.end(), std::int64_t{0}), 5 * kit.per_token());
  EXPECT_GE(result.largest_load(), 1);
}

// One loss alone has no gradient of the other.
TEST(ExpertLoad, OneLossAlone) {
  LoadKit kit;
  for (const bool aux : {true, false}) {
    kit.load.begin({aux ? 0.5 : 0, aux ? 0 : 0.5, 5, nullptr});
    kit.route(router_logits(0, 0, 0, kit.experts()));
    const model::RoutingGradients given = kit.load.gradients(kit.ctx);
    EXPECT_EQ(given.aux.empty(), !aux);
    EXPECT_EQ(given.z > 0, !aux);
  }
}

// Neither a step before nor an evaluation in between adds to a step.
TEST(ExpertLoad, AStepBeginsAtZero) {
  LoadKit kit;
  const BalanceStep step{0.5, 0.5, 5, nullptr};
  const auto run = [&] {
    kit.load.begin(step);
    for (const std::int64_t layer : LoadKit::layers()) kit.route(router_logits(layer, 0, 0, kit.experts()));
    (void)kit.load.gradients(kit.ctx);
    return kit.load.finish();
  };
  const RoutingResult alone = run();
  kit.load.begin_inference();
  kit.route(router_logits(0, 1, 0, kit.experts()));
  EXPECT_EQ(kit.load.planned_gemms(), 1) << "of a forward pass";
  EXPECT_TRUE(kit.load.gradients(kit.ctx).aux.empty());
  EXPECT_EQ(kit.load.finish().aux_loss, 0);
  const RoutingResult after = run();
  EXPECT_EQ(after.aux_loss, alone.aux_loss);
  EXPECT_EQ(after.z_loss, alone.z_loss);
  EXPECT_EQ(after.rows, alone.rows);
}

// A layer computes once for each pass; the most of a layer and a micro-batch count, not their sums.
TEST(ExpertLoad, PassesAreThoseOfOneLayerAndMicroBatch) {
  LoadKit kit;
  const std::array<std::int64_t, 2> first{0, 1};
  const auto compute = [&](int layer, int passes) {
    for (int i = 0; i < passes; ++i) kit.load.computed(layer, i, first);
  };
  kit.load.begin({0, 0, 5, nullptr});
  compute(0, 1), compute(2, 3);
  (void)kit.load.gradients(kit.ctx);
  compute(0, 2), compute(2, 2);
  (void)kit.load.gradients(kit.ctx);
  EXPECT_EQ(kit.load.finish().passes, 3);
  kit.load.begin({0, 0, 5, nullptr});
  compute(0, 1);
  EXPECT_EQ(kit.load.finish().passes, 1) << "a step begins at zero";
}

TEST(ExpertLoad, MeasuresOfLoad) {
  const RoutingResult result{0, 0, {4, 0, 2, 2, 0, 0, 0, 0, 1, 5, 1, 1}, 4};
  EXPECT_DOUBLE_EQ(result.largest_load(), 2.5) << "5 rows, 2 on average, in the last layer";
  EXPECT_EQ(result.idle(), 1) << "a layer without rows has no experts";
  const RoutingResult none{0, 0, {0, 0, 0, 0}, 4};
  EXPECT_EQ(none.largest_load(), 0);
  EXPECT_EQ(none.idle(), 0);
}

}  // namespace
}  // namespace fp8::shard
