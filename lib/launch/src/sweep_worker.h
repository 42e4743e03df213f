/// The process of one job of a sweep, and the records that it sends to the process of the sweep.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/launch/run_sweep.h"

namespace fp8::launch {

/// Forks a process that supervises `run` as fp8-resume(1) does, on the hardware threads `cpus` (all if empty), with
/// part `part` of the GPUs, and ends with the status of the run. It is the leader of a process group and stops as after
/// a request when this process dies. It writes what its command prints on standard output, and its decisions, as JSON
/// Lines to the descriptor `out`, and standard error to RUN/sweep.log. Call it without other threads and while a
/// Requests object exists. Returns the process id; throws Error when the process cannot be made.
pid_t start_worker(const SweepJob& job, const SweepRun& run, std::span<const int> cpus, std::size_t part, int out);

/// Updates `status` by one line of a worker. Returns whether the status is to be reported, and as what in `event`; a
/// line that is no record of a worker is ignored.
bool update(RunStatus& status, std::string_view line, RunEvent& event);

/// The line of a stderr tail that names an error: the last that begins with the name of a tool, else the last with a
/// letter; empty without one. mpirun writes lines of its own below.
std::string error_line(const std::vector<std::string>& tail);

/// Part `part` of `parts` of the list of GPUs CUDA_VISIBLE_DEVICES, whose sizes differ by at most one; the whole list
/// if it has fewer entries than there are parts.
std::string share_gpus(const std::string& list, std::size_t part, std::size_t parts);

}  // namespace fp8::launch
