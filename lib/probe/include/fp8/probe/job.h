/// Checks of all machines of a job: every rank checks its GPU, one rank of each host the rest, and what differs between
/// them is named. Measures clocks and all-reduces between hosts, and looks for one folder on all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/comm/comm.h"
#include "fp8/comm/shared_folder.h"
#include "fp8/probe/doctor.h"

namespace fp8::probe {

/// What a rank reports.
struct RankReport {
  std::string host{};        ///< name of its machine
  std::string version{};     ///< version of its program
  std::string processors{};  ///< train::own_processors()
  int processor_count = 1;   ///< number of these
  int threads = 1;           ///< threads of its loops
  std::string card{};        ///< device::cuda_identity() of its GPU; empty without one
  Diagnosis diagnosis{};     ///< its checks: of everything on the lowest rank of each host, of the GPU on others
};

/// Clocks of the ranks relative to that of rank 0, read at the same time.
struct Clocks {
  std::vector<double> offsets{};  ///< seconds by rank; above 0: the clock is ahead
  double error = 0;               ///< most seconds by which each offset may be wrong
};

/// What the ranks measured together, the same on all of them.
struct Measurements {
  Clocks clocks{};                       ///< clocks of the ranks
  std::string out{};                     ///< folder of the run as the user wrote it; empty: not checked
  comm::FolderView folder{};             ///< whether the ranks see it
  std::vector<std::int64_t> free{};      ///< bytes free there, by rank; below 0: unknown
  std::vector<AllReduce> all_reduces{};  ///< small and large ones, over MPI between one rank of each host, or all of
                                         ///< the only host; over NCCL between all ranks, if each has a GPU
};

/// A report as text for merge() on another rank, and back. Throws Error for a text without a field that is needed.
std::string text_of(const RankReport& report);
/// The report of text_of().
RankReport report_of(const std::string& text);

/// Why two ranks cannot use their GPUs, see train::why_shared(); empty if no two have the same.
std::string why_shared(const std::vector<RankReport>& reports);

/// The report of a job by those of its ranks: checks whose findings are equal everywhere as in one report, others with
/// Check::findings, and the group "job". A check whose Check::common differs fails and is a conflict, as are two ranks
/// with one GPU, wrong sums and a folder that some rank does not see. Of one rank: its diagnosis, and the check of the
/// folder. Reports without checks, of programs of different versions, are compared by their versions alone. Pure.
Diagnosis merge(const std::vector<RankReport>& reports, const Measurements& measured);

/// Diagnoses all machines of the ranks of `world`, with the same result on all ranks. Ranks of different versions
/// exchange nothing but these. Each step has a communicator with its name, which the watchdog's messages contain.
///   around   of this rank; `host` is ignored
///   version  of the program
///   out      folder of the run, or empty
/// Collective; takes some seconds with several ranks.
Diagnosis diagnose_job(comm::Communicator& world, Environment around, const std::string& version,
                       const std::string& out);

/// The lines of a check in a text report: its detail, or each finding with its hosts, at most `most`.
std::vector<std::string> lines_of(const Check& check, std::size_t most = 8);

}  // namespace fp8::probe
