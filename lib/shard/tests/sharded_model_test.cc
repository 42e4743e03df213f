// The memory plan of a model.
#include "fp8/shard/sharded_model.h"

#include "memory_plan_cases.h"
#include "small_model.h"

namespace fp8::shard {
namespace {

using namespace test;
using device::DeviceType;

TEST(MemoryPlan, HasAGibibyteOfLogitsOnAGpuThatHasTheMemory) {
  const auto one = comm::solo();
  std::vector<std::int64_t> tried;
  const auto logits = [&](DeviceType device, std::size_t memory) {
    tried.clear();
    return plan_fitting(*one, device, memory,
                        [&](std::int64_t bytes) {
                          tried.push_back(bytes);
                          return plan_with_logits(bytes);
                        })
        .logit_bytes;
  };
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  EXPECT_EQ(logits(DeviceType::host, 0), 64 * kMiB);
  EXPECT_EQ(logits(DeviceType::cuda, 0), 1024 * kMiB) << "a plan for a GPU that is not there";
  EXPECT_EQ(logits(DeviceType::cuda, kRest + 1024 * kMiB), 1024 * kMiB);
  EXPECT_EQ(logits(DeviceType::cuda, kRest + 1023 * kMiB), 512 * kMiB);
  EXPECT_EQ(logits(DeviceType::cuda, kRest + 130 * kMiB), 128 * kMiB);
  EXPECT_EQ(tried, (std::vector<std::int64_t>{1024 * kMiB, 512 * kMiB, 256 * kMiB, 128 * kMiB}));
  EXPECT_EQ(logits(DeviceType::cuda, kRest), 64 * kMiB) << "does not fit, as the error says when memory is allocated";
}

// The decoder of a model has the block that its plan has.
TEST(MemoryPlan, IsThatOfTheModelWithItsLogits) {
  const auto one = comm::solo();
  ModelSpec spec{small_model(), small_table(small_model()), {}};
  const BatchShape batch{1, 2, {}};
  spec.execution.logit_bytes = model::kMostLogits;
  const MemoryPlan plan = plan_memory({}, comm::Mesh(*one), spec, batch, batch);
  EXPECT_EQ(plan.logit_bytes, model::kLeastLogits);
  const ShardedModel model({}, comm::Mesh(*one), spec, device::Arena());
  EXPECT_EQ(model.decoder.execution().logit_bytes, model::kMostLogits);
}

TEST(MemoryPlan, AnErrorNamesTheLargestCategories) {
  MemoryPlan plan;
  plan.bytes = std::size_t{1} << 62;
  plan.usage = {{"activations", std::size_t{3} << 60},
                {"moments", std::size_t{1} << 59},
                {"gradients", 4096},
                {"compute weights", 2048}};
  const std::string users =
      "out of memory: 4 EiB on each rank: activations 3 EiB, moments 512 PiB, gradients 4 KiB; use "
      "a smaller --batch-size or --seq-length, or --recompute full";
  EXPECT_EQ(error_of([&] { (void)plan.allocate(); }), users);
  for (const auto& [most, remedy] : {std::pair("snapshot", "; leave out --async-save"),
                                     {"moments", "; use --moments bf16 or more ranks"},
                                     {"master weights", "; use --master bf16 or more ranks"},
                                     {"gradients", "; use more ranks, or --zero 3 where it is not"}}) {
    MemoryPlan other = plan;
    other.usage = {{most, std::size_t{3} << 60}};
    EXPECT_TRUE(error_of([&] { (void)other.allocate(); }).ends_with(remedy)) << remedy;
  }
  plan.device = DeviceType::cuda;
  if (device::cuda_device_count() == 0) {  // another error is not changed
    EXPECT_EQ(error_of([&] { (void)plan.allocate(); }).find("out of memory"), std::string::npos);
  } else {
    EXPECT_EQ(error_of([&] { (void)plan.allocate(); }).rfind(users + " (step memory needs 4 EiB on the GPU, ", 0), 0U);
  }
}

}  // namespace
}  // namespace fp8::shard
