// Queries NVML and turns the values into checks.
#include "nvml.h"

#include <array>
#include <cmath>

#include "fp8/base/text.h"
#include "fp8/device/library.h"

namespace fp8::probe {
namespace {

constexpr int kSm = 1, kMemory = 2;   // nvmlClockType_t
constexpr unsigned kMostLinks = 18;   // NVML_NVLINK_MAX_LINKS
constexpr unsigned kTextLength = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE

// Bits of nvmlClocksEventReason that indicate a defect: hardware slowdown, thermal (two bits), power brake.
constexpr unsigned long long kSlow = 0x8, kHot = 0x20 | 0x40, kBrake = 0x80;

const char* const kGpuGroup = "GPU";

template <class F>
F optional_function(const device::Library& library, const char* name) {
  try {
    return library.function<F>(name);
  } catch (const Error&) {
    return nullptr;  // an older library: the value is missing
  }
}

// The value that an NVML function returns; nullopt on failure.
template <class T = unsigned, class F, class... A>
std::optional<T> ask(F function, A... arguments) {
  T value{};
  if (function == nullptr || function(arguments..., &value) != 0) return std::nullopt;
  return value;
}

NvmlGpu read_gpu(const NvmlFunctions& nvml, NvmlFunctions::Device gpu) {
  NvmlGpu g;
  std::array<char, kTextLength> text{};
  if (nvml.name(gpu, text.data(), kTextLength) == 0) g.name = text.data();
  g.memory = ask<NvmlMemory>(nvml.memory, gpu);
  g.sm_mhz = ask(nvml.clock, gpu, kSm);
  g.sm_max_mhz = ask(nvml.max_clock, gpu, kSm);
  g.memory_mhz = ask(nvml.clock, gpu, kMemory);
  g.power_mw = ask(nvml.power, gpu);
  g.power_limit_mw = ask(nvml.power_limit, gpu);
  g.default_power_limit_mw = ask(nvml.default_power_limit, gpu);
  g.slowdowns = ask<unsigned long long>(nvml.slowdowns, gpu);
  g.pcie_generation = ask(nvml.pcie_generation, gpu);
  g.pcie_width = ask(nvml.pcie_width, gpu);
  g.max_pcie_generation = ask(nvml.max_pcie_generation, gpu);
  g.max_pcie_width = ask(nvml.max_pcie_width, gpu);
  for (unsigned link = 0; link < kMostLinks; ++link) g.nvlinks += ask(nvml.link_state, gpu, link).value_or(0) == 1;
  return g;
}

std::string watts(unsigned milliwatts) { return std::to_string((milliwatts + 500) / 1000) + " W"; }

Check memory_check(const NvmlGpu& g, const std::string& name) {
  Check c{kGpuGroup, name, Verdict::none, "unknown", {}};
  if (!g.memory) return c;
  c.verdict = Verdict::pass;
  c.detail = human_bytes(g.memory->total) + ", " + human_bytes(g.memory->used) + " in use";
  if (g.memory->used > g.memory->total / 2) {
    c.verdict = Verdict::fail;
    c.hint = "another program uses the memory: find it with nvidia-smi";
  }
  return c;
}

Check clock_check(const NvmlGpu& g, const std::string& name) {
  Check c{kGpuGroup, name, Verdict::none, "unknown", {}};
  if (!g.sm_mhz || !g.sm_max_mhz) return c;
  c.verdict = Verdict::pass;
  c.detail = std::to_string(*g.sm_mhz) + " of " + std::to_string(*g.sm_max_mhz) + " MHz";
  if (g.memory_mhz) c.detail += ", memory " + std::to_string(*g.memory_mhz) + " MHz";
  const unsigned long long why = g.slowdowns.value_or(0) & (kSlow | kHot | kBrake);
  if (why == 0) return c;
  c.verdict = Verdict::fail;
  c.detail += (why & kHot) != 0 ? ", slowed: temperature" : (why & kBrake) != 0 ? ", slowed: power brake" : ", slowed";
  c.hint = "check cooling and power: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER";
  return c;
}

Check power_check(const NvmlGpu& g, const std::string& name) {
  Check c{kGpuGroup, name, Verdict::none, "unknown", {}};
  if (!g.power_limit_mw) return c;
  c.verdict = Verdict::pass;
  c.detail = "cap " + watts(*g.power_limit_mw);
  if (g.power_mw) c.detail = watts(*g.power_mw) + " now, " + c.detail;
  if (!g.default_power_limit_mw || *g.power_limit_mw >= *g.default_power_limit_mw) return c;
  c.verdict = Verdict::fail;
  c.detail += " below the default " + watts(*g.default_power_limit_mw);
  c.hint = "as root: nvidia-smi -pl " + std::to_string((*g.default_power_limit_mw + 500) / 1000);
  return c;
}

Check link_check(const NvmlGpu& g, const std::string& name) {
  Check c{kGpuGroup, name, Verdict::none, "unknown", {}};
  if (g.nvlinks > 0) c.detail = "NVLink, " + std::to_string(g.nvlinks) + (g.nvlinks == 1 ? " link" : " links");
  if (g.nvlinks > 0) c.verdict = Verdict::pass;
  if (!g.pcie_width || !g.max_pcie_width) return c;
  // An idle card lowers the generation and keeps the width.
  const std::string pcie = "PCIe " + (g.max_pcie_generation ? std::to_string(*g.max_pcie_generation) + ".0 " : "") +
                           "x" + std::to_string(*g.pcie_width);
  c.detail = c.verdict == Verdict::pass ? c.detail + "; " + pcie : pcie;
  c.verdict = Verdict::pass;
  if (*g.pcie_width >= *g.max_pcie_width) return c;
  c.verdict = Verdict::fail;
  c.detail += " of x" + std::to_string(*g.max_pcie_width);
  c.hint = "the slot is narrower than the card, or lanes failed: reseat the card";
  return c;
}

}  // namespace

NvmlFunctions load_nvml() {
  const device::Library library({"libnvidia-ml.so.1"}, "install NVIDIA's driver, which contains it");
  NvmlFunctions n;
  n.init = library.function<decltype(n.init)>("nvmlInit_v2");
  n.shutdown = library.function<decltype(n.shutdown)>("nvmlShutdown");
  n.driver_version = library.function<decltype(n.driver_version)>("nvmlSystemGetDriverVersion");
  n.count = library.function<decltype(n.count)>("nvmlDeviceGetCount_v2");
  n.handle = library.function<decltype(n.handle)>("nvmlDeviceGetHandleByIndex_v2");
  n.name = library.function<decltype(n.name)>("nvmlDeviceGetName");
  const auto fill = [&](auto& function, const char* name) {
    function = optional_function<std::remove_reference_t<decltype(function)>>(library, name);
  };
  fill(n.cuda_version, "nvmlSystemGetCudaDriverVersion_v2");
  fill(n.memory, "nvmlDeviceGetMemoryInfo");
  fill(n.slowdowns, "nvmlDeviceGetCurrentClocksThrottleReasons");
  fill(n.clock, "nvmlDeviceGetClockInfo");
  fill(n.max_clock, "nvmlDeviceGetMaxClockInfo");
  fill(n.power, "nvmlDeviceGetPowerUsage");
  fill(n.power_limit, "nvmlDeviceGetPowerManagementLimit");
  fill(n.default_power_limit, "nvmlDeviceGetPowerManagementDefaultLimit");
  fill(n.pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
  fill(n.pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  fill(n.max_pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  fill(n.max_pcie_width, "nvmlDeviceGetMaxPcieLinkWidth");
  fill(n.link_state, "nvmlDeviceGetNvLinkState");
  return n;
}

NvmlFacts read_nvml(const NvmlFunctions& nvml) {
  if (const int result = nvml.init(); result != 0)
    throw Error("NVML: initialization failed, error " + std::to_string(result) +
                (result == 9    ? ": no driver is loaded"
                 : result == 18 ? ": versions of library and driver differ"
                                : ""));
  NvmlFacts facts;
  std::array<char, kTextLength> text{};
  if (nvml.driver_version(text.data(), kTextLength) == 0) facts.driver = text.data();
  facts.cuda = ask<int>(nvml.cuda_version).value_or(0);
  const unsigned count = ask(nvml.count).value_or(0);
  for (unsigned i = 0; i < count; ++i) {
    if (const auto gpu = ask<NvmlFunctions::Device>(nvml.handle, i)) facts.gpus.push_back(read_gpu(nvml, *gpu));
  }
  (void)nvml.shutdown();  // everything has been read
  return facts;
}

std::vector<Check> gpu_checks(const NvmlGpu& gpu, std::size_t index) {
  const std::string name = "GPU " + std::to_string(index) + " ";
  return {memory_check(gpu, name + "memory"), clock_check(gpu, name + "clocks"), power_check(gpu, name + "power"),
          link_check(gpu, name + "links")};
}

}  // namespace fp8::probe
