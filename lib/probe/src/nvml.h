/// Reads the driver version and the state of every GPU from NVML. The functions are declared here, so that neither
/// NVML's header nor a driver is needed to build. Source: NVML API reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/probe/check.h"

namespace fp8::probe {

/// nvmlMemory_t, bytes.
struct NvmlMemory {
  unsigned long long total, free, used;
};

/// NVML functions; all return 0 for success. Functions that load_nvml() treats as optional are null when the library
/// is too old.
struct NvmlFunctions {
  using Device = void*;
  using Number = int (*)(Device, unsigned*);
  using Clock = int (*)(Device, int, unsigned*);
  using Link = int (*)(Device, unsigned, unsigned*);
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*memory)(Device, NvmlMemory*) = nullptr;
  int (*slowdowns)(Device, unsigned long long*) = nullptr;
  Clock clock = nullptr, max_clock = nullptr;
  Number power_limit = nullptr, default_power_limit = nullptr, power = nullptr;
  Number pcie_generation = nullptr, pcie_width = nullptr, max_pcie_generation = nullptr, max_pcie_width = nullptr;
  Link link_state = nullptr;
};

/// State of one GPU. Values that NVML does not report are nullopt.
struct NvmlGpu {
  std::string name;
  std::optional<NvmlMemory> memory;
  std::optional<unsigned> sm_mhz, sm_max_mhz, memory_mhz;
  std::optional<unsigned> power_mw, power_limit_mw, default_power_limit_mw;
  std::optional<unsigned long long> slowdowns;  ///< bits of nvmlClocksEventReason
  std::optional<unsigned> pcie_generation, pcie_width, max_pcie_generation, max_pcie_width;
  int nvlinks = 0;  ///< number of active links
};

/// State of the driver and the GPUs.
struct NvmlFacts {
  std::string driver;  ///< "580.95.05"
  int cuda = 0;        ///< newest CUDA version that the driver supports, 13000 for 13.0; 0: unknown
  std::vector<NvmlGpu> gpus;
};

/// Loads NVML, which is part of the driver. Throws Error when it is missing.
NvmlFunctions load_nvml();

/// Queries all values. Throws Error when NVML cannot be initialized.
NvmlFacts read_nvml(const NvmlFunctions& nvml);

/// Checks of GPU number `index` in the group "GPU": memory, clocks, power, links.
std::vector<Check> gpu_checks(const NvmlGpu& gpu, std::size_t index);

}  // namespace fp8::probe
