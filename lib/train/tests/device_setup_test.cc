// Assignment of GPUs to ranks, GPUs without FP8, and insufficient memory, as far as no GPU is needed.
#include "fp8/train/device_setup.h"

#include "fp8/train/records.h"
#include "small_model.h"

namespace fp8::train {
namespace {

using namespace test;

using device::DeviceType;

settings::PrecisionConfig asked(settings::Precision precision, bool emulate) {
  settings::PrecisionConfig p;
  p.precision = precision;
  p.emulate = emulate;
  return p;
}

TEST(CheckFp8, GpusWithoutFp8NeedEmulation) {
  const auto refusal = [](const settings::PrecisionConfig& precision, DeviceType device, int capability) {
    return error_of([&] { check_fp8(precision, device, capability, "NVIDIA A100, compute capability 8.0, 80 GiB"); });
  };
  for (const int before : {75, 80, 86})
    EXPECT_EQ(
        refusal(asked(settings::Precision::fp8, false), DeviceType::cuda, before),
        "--precision fp8: NVIDIA A100, compute capability 8.0, 80 GiB has no FP8 matmul: --emulate multiplies FP8 "
        "values as bf16, --device cpu does so too, and --precision bf16 has none");
  for (const int with : {89, 90, 100, 120})
    EXPECT_EQ(refusal(asked(settings::Precision::fp8, false), DeviceType::cuda, with), "no error");
  EXPECT_EQ(refusal(asked(settings::Precision::fp8, true), DeviceType::cuda, 80), "no error");
  EXPECT_EQ(refusal(asked(settings::Precision::bf16, false), DeviceType::cuda, 80), "no error");
  EXPECT_EQ(refusal(asked(settings::Precision::fp8, false), DeviceType::host, 0), "no error");
  settings::PrecisionConfig hopper = asked(settings::Precision::fp8, true);
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
  const auto ranks = comm::solo();
  const std::vector<std::string> apart{"a", "b", "", "c", ""}, twice{"a", "", "b", "c", "b"};
  EXPECT_EQ(why_shared(apart, *ranks), "");
  EXPECT_EQ(why_shared({}, *ranks), "");
  EXPECT_EQ(why_shared(twice, *ranks), "ranks 2 and 4 have the same GPU, which serves one");
}

TEST(Gpus, NoteWhereOnlySomeRanksHaveOne) {
  const auto ranks = comm::solo();
  const std::vector<std::string> none{"", ""}, each{"a", "b"}, some{"a", "", "b"}, shared{"a", "a"};
  EXPECT_EQ(note_of_cpu(none, *ranks), "");
  EXPECT_EQ(note_of_cpu(each, *ranks), "");
  EXPECT_EQ(note_of_cpu(some, *ranks),
            "rank 1 has no GPU of its own, others have one: all ranks compute on the CPU (--device cuda refuses that)");
  EXPECT_EQ(
      note_of_cpu(shared, *ranks),
      "ranks 0 and 1 have the same GPU, which serves one: all ranks compute on the CPU (--device cuda refuses that)");
}

// No GPU is needed: only the device of the context decides what is measured.
TEST(PeakMemory, IsThatOfTheDevice) {
  const auto one = comm::solo();
  const hf::ModelConfig config = small_model();
  Kit kit(*one, config, small_table(config), shard::StoreOptions{});
  const std::int64_t host = peak_memory(kit), own = static_cast<std::int64_t>(kit.planned);
  EXPECT_GT(host, own) << "the whole process";
  kit.ctx.device = DeviceType::cuda;
  EXPECT_EQ(peak_memory(kit), own) << "no GEMM ran, so there is no scratch";
}

}  // namespace
}  // namespace fp8::train
