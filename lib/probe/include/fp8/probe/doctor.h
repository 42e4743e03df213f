/// Checks whether FP8 can run on this machine (job.h: on all machines of a job). All checks run, whatever the results
/// of the others. Checks of matrix multiply use operands whose products and sums are exact, so that results are
/// compared bit by bit.
#pragma once

#include <cstdint>
#include <optional>
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
  int local_rank = 0;       ///< number of this process among those of its job on this machine
  bool host = true;         ///< false: only the checks of this process's GPU, for ranks on a host that another checks
};

/// An all-reduce that was timed.
struct AllReduce {
  std::string library{};       ///< MPI or NCCL
  int ranks = 0;               ///< ranks that took part
  std::int64_t bytes = 0;      ///< of each rank
  double seconds = 0;          ///< of the slowest rank
  bool exact = false;          ///< whether all ranks got the right sums
  double bytes_per_s() const;  ///< bus bandwidth, 2 (ranks - 1) / ranks x bytes / seconds, as nccl-tests define it
};

/// What only the report of several ranks has.
struct Job {
  /// A machine.
  struct Host {
    std::string name;  ///< its name
    int ranks;         ///< number of ranks there
  };
  std::vector<Host> hosts{};             ///< in the order of their lowest ranks
  std::vector<std::string> conflicts{};  ///< names of checks whose results prevent that the ranks train together
  std::vector<AllReduce> all_reduces{};  ///< as in Measurements
  int ranks() const;                     ///< number of all ranks
};

/// Results of all checks.
struct Diagnosis {
  std::vector<Check> checks{};  ///< checks in their order, grouped
  std::string device{};         ///< name of the GPU, or "CPU"
  bool native = false;          ///< FP8 runs on the GPU with exact results; of a job: on that of each rank
  bool emulated = false;        ///< FP8 emulation on the CPU has exact results; of a job: on each host
  std::optional<Job> job{};     ///< in a report of several ranks
  /// Whether the answer is yes: FP8 runs natively; of a job: its ranks can train in FP8 together, emulated or not.
  bool good() const { return job ? job->conflicts.empty() && (native || emulated) : native; }
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
/// hint}]}. A check whose findings differ has "findings" too: [{hosts, verdict, detail, hint}]; and that of a job has
/// "together", "conflicts", "hosts": [{name, ranks}] and "all_reduces": [{library, ranks, bytes, seconds,
/// bytes_per_s}].
json::Value to_json(const Diagnosis& diagnosis);

}  // namespace fp8::probe
