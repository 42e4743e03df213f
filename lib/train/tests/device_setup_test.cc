// Assignment of GPUs to ranks, GPUs without FP8, and insufficient memory, as far as no GPU is needed.
#include "device_setup.h"

#include "helpers.h"
#include "records.h"

namespace fp8::train {
namespace {

using device::DeviceType;

PrecisionConfig asked(Precision precision, bool emulate) {
  PrecisionConfig p;
  p.precision = precision;
  p.emulate = emulate;
  return p;
}

TEST(CheckFp8, GpusWithoutFp8NeedEmulation) {
  const auto refusal = [](const PrecisionConfig& precision, DeviceType device, int capability) {
    return error_of([&] { check_fp8(precision, device, capability, "NVIDIA A100, compute capability 8.0, 80 GiB"); });
  };
  for (const int before : {75, 80, 86})
    EXPECT_EQ(
        refusal(asked(Precision::fp8, false), DeviceType::cuda, before),
        "--precision fp8: NVIDIA A100, compute capability 8.0, 80 GiB has no FP8 matmul: --emulate multiplies FP8 "
        "values as bf16, --device cpu does so too, and --precision bf16 has none");
  for (const int with : {89, 90, 100, 120})
    EXPECT_EQ(refusal(asked(Precision::fp8, false), DeviceType::cuda, with), "no error");
  EXPECT_EQ(refusal(asked(Precision::fp8, true), DeviceType::cuda, 80), "no error");
  EXPECT_EQ(refusal(asked(Precision::bf16, false), DeviceType::cuda, 80), "no error");
  EXPECT_EQ(refusal(asked(Precision::fp8, false), DeviceType::host, 0), "no error");
  PrecisionConfig hopper = asked(Precision::fp8, true);
  hopper.accumulation = gemm::Accumulation::hopper;
  EXPECT_EQ(refusal(hopper, DeviceType::host, 0), "no error");
  EXPECT_EQ(
      refusal(hopper, DeviceType::cuda, 80),
      "--accumulate: hopper is computed on the CPU only; add --device cpu, or leave it out to sum as NVIDIA A100, "
      "compute capability 8.0, 80 GiB does");
}

TEST(Gpus, OneForEachRank) {
  EXPECT_EQ(gpu_of(3, 8), 3);
  EXPECT_EQ(gpu_of(3, 2), 3) << "no such GPU";
  EXPECT_EQ(gpu_of(3, 1), 0) << "the only visible one";
  const std::vector<std::string> apart{"a", "b", "", "c", ""}, twice{"a", "", "b", "c", "b"};
  EXPECT_EQ(why_shared(apart), "");
  EXPECT_EQ(why_shared({}), "");
  EXPECT_EQ(why_shared(twice), "ranks 2 and 4 have the same GPU, which serves one");
}

TEST(Gpus, NoteWhereOnlySomeRanksHaveOne) {
  const std::vector<std::string> none{"", ""}, each{"a", "b"}, some{"a", "", "b"}, shared{"a", "a"};
  EXPECT_EQ(note_of_cpu(none), "");
  EXPECT_EQ(note_of_cpu(each), "");
  EXPECT_EQ(note_of_cpu(some),
            "rank 1 has no GPU of its own, others have one: all ranks compute on the CPU (--device cuda refuses that)");
  EXPECT_EQ(
      note_of_cpu(shared),
      "ranks 0 and 1 have the same GPU, which serves one: all ranks compute on the CPU (--device cuda refuses that)");
}

// No GPU is needed: only the device of the context decides what is measured.
TEST(PeakMemory, IsThatOfTheDevice) {
  const auto one = comm::solo();
  const hf::ModelConfig config = small_model();
  Kit kit(*one, config, small_table(config), StoreOptions{});
  const std::int64_t host = peak_memory(kit), own = static_cast<std::int64_t>(kit.planned);
  EXPECT_GT(host, own) << "the whole process";
  kit.ctx.device = DeviceType::cuda;
  EXPECT_EQ(peak_memory(kit), own) << "no GEMM ran, so there is no scratch";
}

TEST(MemoryPlan, HasAGibibyteOfLogitsOnAGpuThatHasTheMemory) {
  constexpr std::size_t kRest = std::size_t{70} << 30;
  std::vector<std::int64_t> tried;
  const auto logits = [&](DeviceType device, std::size_t memory) {
    tried.clear();
    return plan_fitting(device, memory,
                        [&](std::int64_t bytes) {
                          tried.push_back(bytes);
                          MemoryPlan plan;
                          plan.bytes = kRest + static_cast<std::size_t>(bytes);
                          plan.logit_bytes = bytes;
                          return plan;
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
  spec.logit_bytes = model::kMostLogits;
  const MemoryPlan plan = plan_memory({}, *one, spec, batch, batch);
  EXPECT_EQ(plan.logit_bytes, model::kLeastLogits);
  const ShardedModel model({}, *one, spec, device::Arena());
  EXPECT_EQ(model.decoder.options().logit_bytes, model::kMostLogits);
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
}  // namespace fp8::train
