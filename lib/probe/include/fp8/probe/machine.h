/// Checks of a machine other than its GPUs: processor, memory, networks, MPI, and the number of NVIDIA cards on the PCI
/// bus. Reads /proc and /sys below a root folder, which tests replace; a value from a missing or malformed file counts
/// as unknown.
#pragma once

#include <string>
#include <vector>

#include "fp8/base/cpu.h"
#include "fp8/probe/check.h"

namespace fp8::probe {

/// Instruction sets and threads of host loops and GEMMs.
struct HostCompute {
  Isa isa;             ///< instruction set in use (cpu_isa)
  Isa supported;       ///< largest instruction set of the CPU (supported_isa)
  std::string wanted;  ///< FP8_CPU_ISA; empty when not set
  bool native;         ///< whether bf16 GEMMs use bf16 instructions (gemm::native_host_bf16)
  int threads;         ///< threads of a loop
};

/// Checks of the group "machine": processor, instruction set, bf16, threads, memory, huge pages, network, InfiniBand.
///   root  prefix of /proc and /sys
std::vector<Check> machine_checks(const std::string& root, const HostCompute& compute);

/// The check "MPI" of the group "libraries": runs `mpirun -n 2 true`, which Open MPI refuses to do as root. Not for a
/// process that mpirun or srun started: mpirun cannot be nested in them.
///   library  "Open MPI 4.1.4"
///   mpirun   path of the program
Check mpi_check(const std::string& library, const std::string& mpirun);

/// Number of NVIDIA display and compute cards on the PCI bus.
int nvidia_cards(const std::string& root);

}  // namespace fp8::probe
