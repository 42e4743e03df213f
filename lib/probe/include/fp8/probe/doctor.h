/// Checks whether FP8 can run on this machine. All checks run, whatever the results of the others. Checks of matrix
/// multiply use operands whose products and sums are exact, so that results are compared bit by bit.
#pragma once

#include <string>
#include <vector>

#include "fp8/gemm/gemm.h"
#include "fp8/json/value.h"
#include "fp8/probe/check.h"

namespace fp8::probe {

/// Environment of the checks.
struct Environment {
  std::string root{};       ///< prefix of /proc and /sys
  std::string path{};       ///< PATH: folders of programs, separated by colons
  std::string cpu_isa{};    ///< FP8_CPU_ISA; empty when not set
  bool inside_mpi = false;  ///< whether mpirun or srun started this process, so that mpirun cannot be run
};

/// Results of all checks.
struct Diagnosis {
  std::vector<Check> checks{};  ///< checks in their order, grouped
  std::string device{};         ///< name of the GPU, or "CPU"
  bool native = false;          ///< FP8 runs on the GPU with exact results
  bool emulated = false;        ///< FP8 emulation on the CPU has exact results
};

/// The check of oneDNN, which always passes. Before 3.11.2 its f32 kernels for CPUs without AVX-512 use the stack
/// pointer as a general register (uxlfoundation/oneDNN issue 4845): the detail names the defect, the hint the
/// precautions.
Check onednn_check(const gemm::HostLibrary& library);

/// Runs all checks, on the first GPU of the process; takes a few seconds with CUDA libraries. Does not throw Error.
Diagnosis diagnose(const Environment& around);

/// The overall result as a sentence without a full stop.
std::string verdict_of(const Diagnosis& diagnosis);

/// {"type": "doctor", "fp8": "native"|"emulated"|"none", "device": ..., "checks": [{group, name, verdict, detail,
/// hint}]}.
json::Value to_json(const Diagnosis& diagnosis);

}  // namespace fp8::probe
