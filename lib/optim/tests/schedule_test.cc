// Schedules against their formulas and against the rates of a reference run.
#include "fp8/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <vector>

namespace fp8::optim {
namespace {

TEST(Schedule, NamesFollowTheEnumeration) {
  const auto names = schedule_names();
  ASSERT_EQ(names.size(), 4u);
  EXPECT_EQ(names[static_cast<std::size_t>(ScheduleKind::cosine)], "cosine");
  EXPECT_EQ(names[static_cast<std::size_t>(ScheduleKind::linear)], "linear");
  EXPECT_EQ(names[static_cast<std::size_t>(ScheduleKind::constant)], "constant");
  EXPECT_EQ(names[static_cast<std::size_t>(ScheduleKind::wsd)], "wsd");
  const auto shapes = decay_shape_names();
  ASSERT_EQ(shapes.size(), 4u);
  EXPECT_EQ(shapes[static_cast<std::size_t>(DecayShape::linear)], "linear");
  EXPECT_EQ(shapes[static_cast<std::size_t>(DecayShape::cosine)], "cosine");
  EXPECT_EQ(shapes[static_cast<std::size_t>(DecayShape::sqrt)], "sqrt");
  EXPECT_EQ(shapes[static_cast<std::size_t>(DecayShape::one_minus_sqrt)], "1-sqrt");
}

TEST(Schedule, CosineMatchesTheReferenceCurve) {
  const Schedule s{.kind = ScheduleKind::cosine, .lr = 1e-3, .min_lr = 1e-4, .warmup = 10, .steps = 100};
  const std::map<std::int64_t, double> rates{{0, 0.0001},
                                             {1, 0.0002},
                                             {8, 0.0009000000000000001},
                                             {9, 0.001},
                                             {10, 0.001},
                                             {11, 0.000999725872158593},
                                             {50, 0.0006281416799501188},
                                             {54, 0.0005657047735161255},
                                             {55, 0.00055},
                                             {99, 0.00010027412784140692}};
  for (const auto& [t, rate] : rates) EXPECT_NEAR(s.rate(t), rate, 1e-18) << t;
}

// Values of get_cosine_schedule_with_warmup(4, 20) of transformers times 1e-3.
TEST(Schedule, WarmupFromZeroMatchesTransformers) {
  const Schedule s{.kind = ScheduleKind::cosine, .lr = 1e-3, .warmup = 4, .warmup_from = 0.0, .steps = 20};
  const std::map<std::int64_t, double> rates{{0, 0},
                                             {1, 0.00025},
                                             {3, 0.00075},
                                             {4, 0.001},
                                             {5, 0.0009903926402016153},
                                             {10, 0.000691341716182545},
                                             {19, 9.607359798384786e-06}};
  for (const auto& [t, rate] : rates) EXPECT_NEAR(s.rate(t), rate, 1e-18) << t;
}

TEST(Schedule, WarmupFromARateIsTheSameForEachKind) {
  for (const ScheduleKind kind :
       {ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::constant, ScheduleKind::wsd}) {
    const Schedule s{.kind = kind, .lr = 2, .warmup = 4, .warmup_from = 1.0, .steps = 8, .decay_steps = 2};
    const std::vector<double> expected{1, 1.25, 1.5, 1.75, 2};
    for (std::size_t t = 0; t < expected.size(); ++t) EXPECT_EQ(s.rate(static_cast<std::int64_t>(t)), expected[t]) << t;
  }
}

TEST(Schedule, LinearDecaysToTheMinimum) {
  const Schedule s{.kind = ScheduleKind::linear, .lr = 1, .min_lr = 0.5, .warmup = 2, .steps = 10};
  const std::vector<double> expected{0.5, 1, 1, 0.9375, 0.875, 0.8125, 0.75, 0.6875, 0.625, 0.5625, 0.5, 0.5};
  for (std::size_t t = 0; t < expected.size(); ++t) EXPECT_EQ(s.rate(static_cast<std::int64_t>(t)), expected[t]) << t;
}

TEST(Schedule, ConstantIsConstant) {
  const Schedule s{.kind = ScheduleKind::constant, .lr = 2, .min_lr = 1, .warmup = 4, .steps = 10};
  EXPECT_EQ(s.rate(0), 0.5);
  EXPECT_EQ(s.rate(3), 2);
  EXPECT_EQ(s.rate(9), 2);
  EXPECT_EQ(s.rate(1000), 2);
}

TEST(Schedule, WsdDecaysAtTheEnd) {
  const Schedule s{.kind = ScheduleKind::wsd, .lr = 1, .min_lr = 0, .warmup = 0, .steps = 12, .decay_steps = 4};
  EXPECT_EQ(s.rate(0), 1);
  EXPECT_EQ(s.rate(8), 1);
  EXPECT_EQ(s.rate(9), 0.75);
  EXPECT_EQ(s.rate(11), 0.25);
  EXPECT_EQ(s.rate(12), 0);
  const Schedule all{.kind = ScheduleKind::wsd, .lr = 1, .min_lr = 0, .warmup = 8, .steps = 12, .decay_steps = 100};
  EXPECT_EQ(all.rate(7), 1);
  EXPECT_EQ(all.rate(8), 1);
  EXPECT_EQ(all.rate(10), 0.5) << "decay starts at the end of warmup";
  const Schedule none{.kind = ScheduleKind::wsd, .lr = 1, .min_lr = 0, .warmup = 0, .steps = 12};
  EXPECT_EQ(none.rate(11), 1);
}

TEST(Schedule, WsdDecaysInTheShapeThatIsNamed) {
  const auto rate = [](DecayShape shape, std::int64_t t) {
    return Schedule{.kind = ScheduleKind::wsd,
                    .lr = 5,
                    .min_lr = 1,
                    .warmup = 0,
                    .steps = 20,
                    .decay_steps = 16,
                    .decay_shape = shape}
        .rate(t);
  };
  for (const DecayShape shape :
       {DecayShape::linear, DecayShape::cosine, DecayShape::sqrt, DecayShape::one_minus_sqrt}) {
    EXPECT_EQ(rate(shape, 3), 5);
    EXPECT_EQ(rate(shape, 4), 5);
    EXPECT_EQ(rate(shape, 20), 1);
    EXPECT_EQ(rate(shape, 21), 1);
  }
  EXPECT_EQ(rate(DecayShape::linear, 8), 4);  // after a quarter of the steps, and after three quarters
  EXPECT_EQ(rate(DecayShape::one_minus_sqrt, 8), 3);
  EXPECT_EQ(rate(DecayShape::sqrt, 16), 3);
  EXPECT_NEAR(rate(DecayShape::cosine, 8), 3 + std::numbers::sqrt2, 1e-15);
}

TEST(Schedule, EdgesAreFinite) {
  for (const ScheduleKind kind : {ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::wsd}) {
    const Schedule s{.kind = kind, .lr = 1, .min_lr = 0.25, .warmup = 4, .steps = 4, .decay_steps = 0};
    EXPECT_EQ(s.rate(3), 1);
    EXPECT_EQ(s.rate(4), 0.25);
    EXPECT_EQ(s.rate(400), 0.25);
  }
}

}  // namespace
}  // namespace fp8::optim
