/// What NVIDIA's management library says of the driver and of every GPU of the machine. Its functions are declared
/// here, few and old as they are, so that neither its header nor a driver is needed to build. Source: NVML API
/// reference.
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

/// The functions that are used, under NVML's names; all return 0 for success. Those of a GPU may be null where the
/// library is too old to have them.
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

/// One GPU. What the library does not tell is empty.
struct NvmlGpu {
  std::string name;
  std::optional<NvmlMemory> memory;
  std::optional<unsigned> sm_mhz, sm_max_mhz, memory_mhz;
  std::optional<unsigned> power_mw, power_limit_mw, default_power_limit_mw;
  std::optional<unsigned long long> slowdowns;  ///< bits of nvmlClocksEventReason
  std::optional<unsigned> pcie_generation, pcie_width, max_pcie_generation, max_pcie_width;
  int nvlinks = 0;  ///< that are up
};

/// What the library knows.
struct NvmlFacts {
  std::string driver;  ///< "580.95.05"
  int cuda = 0;        ///< newest that the driver serves, 13000 for 13.0; 0: not told
  std::vector<NvmlGpu> gpus;
};

/// Loads the library, which comes with the driver. Throws Error where it is missing.
NvmlFunctions load_nvml();

/// Asks everything. Throws Error where the library does not start.
NvmlFacts read_nvml(const NvmlFunctions& nvml);

/// Checks of the group "GPU" of GPU number `index`: memory, clocks, power, interconnect.
std::vector<Check> gpu_checks(const NvmlGpu& gpu, std::size_t index);

}  // namespace fp8::probe
