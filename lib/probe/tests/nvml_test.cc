// Checks of NVML values from fake functions, and the table of chips.
#include "nvml.h"

#include <cstring>

#include "fp8/probe/chip.h"
#include "fp8_test.h"

namespace fp8::probe {
namespace {

constexpr unsigned long long kGiB = 1ULL << 30;

NvmlGpu good() {
  NvmlGpu g;
  g.name = "NVIDIA H100 80GB HBM3";
  g.memory = NvmlMemory{80 * kGiB, 79 * kGiB, kGiB};
  g.sm_mhz = 345, g.sm_max_mhz = 1980, g.memory_mhz = 2619;
  g.power_mw = 70400, g.power_limit_mw = 700000, g.default_power_limit_mw = 700000;
  g.slowdowns = 1;  // idle
  g.pcie_width = 16, g.max_pcie_width = 16, g.pcie_generation = 1, g.max_pcie_generation = 5;
  g.nvlinks = 18;
  return g;
}

enum Line { kMemory, kClocks, kPower, kLinks };

void expect(const NvmlGpu& gpu, Line line, Verdict verdict, const std::string& detail) {
  const Check c = gpu_checks(gpu, 3)[line];
  EXPECT_EQ(c.name.find("GPU 3 "), 0u);
  EXPECT_EQ(c.verdict, verdict) << c.name;
  EXPECT_EQ(c.detail, detail);
  EXPECT_EQ(c.hint.empty(), verdict != Verdict::fail) << c.hint;
}

TEST(GpuChecks, HealthyGpuPasses) {
  expect(good(), kMemory, Verdict::pass, "80 GiB, 1 GiB in use");
  expect(good(), kClocks, Verdict::pass, "345 of 1980 MHz, memory 2619 MHz");
  expect(good(), kPower, Verdict::pass, "70 W now, cap 700 W");
  expect(good(), kLinks, Verdict::pass, "NVLink, 18 links; PCIe 5.0 x16");
}

TEST(GpuChecks, UnknownValuesAreNoFailure) {
  for (const Line line : {kMemory, kClocks, kPower, kLinks}) expect(NvmlGpu{}, line, Verdict::none, "unknown");
}

TEST(GpuChecks, DefectsAreReported) {
  NvmlGpu g = good();
  g.memory->used = 60 * kGiB;
  expect(g, kMemory, Verdict::fail, "80 GiB, 60 GiB in use");
  g.slowdowns = 0x40;
  expect(g, kClocks, Verdict::fail, "345 of 1980 MHz, memory 2619 MHz, slowed: temperature");
  g.slowdowns = 0x80 | 0x4;
  expect(g, kClocks, Verdict::fail, "345 of 1980 MHz, memory 2619 MHz, slowed: power brake");
  g.slowdowns = 0x4;  // the power cap under load
  expect(g, kClocks, Verdict::pass, "345 of 1980 MHz, memory 2619 MHz");
  g.power_limit_mw = 400000;
  expect(g, kPower, Verdict::fail, "70 W now, cap 400 W below the default 700 W");
  EXPECT_EQ(gpu_checks(g, 0)[kPower].hint, "as root: nvidia-smi -pl 700");
  g.nvlinks = 0, g.pcie_width = 4;
  expect(g, kLinks, Verdict::fail, "PCIe 5.0 x4 of x16");
}

// A fake NVML with two GPUs, the second of which reports only its name; handles are 1 and 2.
int succeed() { return 0; }
int no_driver() { return 9; }
bool first(NvmlFunctions::Device gpu) { return gpu == reinterpret_cast<void*>(1); }

NvmlFunctions stand_in() {
  NvmlFunctions n;
  n.init = n.shutdown = succeed;
  n.driver_version = [](char* text, unsigned size) {
    std::strncpy(text, "580.95.05", size);
    return 0;
  };
  n.cuda_version = [](int* version) {
    *version = 13000;
    return 0;
  };
  n.count = [](unsigned* count) {
    *count = 2;
    return 0;
  };
  n.handle = [](unsigned index, NvmlFunctions::Device* gpu) {
    *gpu = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
    return 0;
  };
  n.name = [](NvmlFunctions::Device gpu, char* text, unsigned size) {
    std::strncpy(text, first(gpu) ? "one" : "two", size);
    return 0;
  };
  n.clock = [](NvmlFunctions::Device gpu, int which, unsigned* mhz) {
    *mhz = which == 1 ? 1000 : 2000;
    return first(gpu) ? 0 : 3;  // not supported
  };
  n.link_state = [](NvmlFunctions::Device gpu, unsigned link, unsigned* up) {
    *up = link < 4;
    return first(gpu) && link < 6 ? 0 : 2;
  };
  return n;
}

TEST(Nvml, ReadsEveryGpu) {
  const NvmlFacts facts = read_nvml(stand_in());
  EXPECT_EQ(facts.driver, "580.95.05");
  EXPECT_EQ(facts.cuda, 13000);
  ASSERT_EQ(facts.gpus.size(), 2u);
  EXPECT_EQ(facts.gpus[0].name + facts.gpus[1].name, "onetwo");
  EXPECT_EQ(facts.gpus[0].sm_mhz, 1000u);
  EXPECT_EQ(facts.gpus[0].memory_mhz, 2000u);
  EXPECT_EQ(facts.gpus[0].nvlinks, 4);
  EXPECT_FALSE(facts.gpus[0].power_mw);  // the function is missing
  EXPECT_FALSE(facts.gpus[1].sm_mhz);
  EXPECT_EQ(facts.gpus[1].nvlinks, 0);
}

TEST(Nvml, ReportsFailedInitialization) {
  NvmlFunctions n = stand_in();
  n.init = no_driver;
  EXPECT_EQ(test::error_of([&] { (void)read_nvml(n); }), "NVML: initialization failed, error 9: no driver is loaded");
}

TEST(Chips, FoundByName) {
  EXPECT_EQ(known_peak("NVIDIA H100 80GB HBM3, compute capability 9.0, 79.1 GiB")->fp8, 1978.9e12);
  EXPECT_EQ(known_peak("NVIDIA H100 PCIe")->bf16, 756.5e12);
  EXPECT_EQ(known_peak("NVIDIA H200")->bf16, 989.4e12);
  EXPECT_EQ(known_peak("NVIDIA H20")->bf16, 148e12);
  EXPECT_EQ(known_peak("NVIDIA L4")->bf16, 121e12);
  EXPECT_EQ(known_peak("NVIDIA L40S")->bf16, 362.05e12);
  EXPECT_EQ(known_peak("NVIDIA A100-SXM4-80GB")->fp8, 0);
  EXPECT_FALSE(known_peak("CPU"));
  EXPECT_FALSE(known_peak("NVIDIA H200 NVL"));
  EXPECT_FALSE(known_peak("NVIDIA GH200 480GB"));
  EXPECT_FALSE(known_peak("NVIDIA GeForce GTX 1080"));
  EXPECT_FALSE(known_peak("NVIDIA L403"));
}

}  // namespace
}  // namespace fp8::probe
