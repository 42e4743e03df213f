/// Runs a sweep: several jobs at the same time on cores of their own, each supervised as by fp8-resume(1). The library
/// part of fp8-sweep(1). Linux only (fork, PR_SET_PDEATHSIG).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/launch/sweep.h"

namespace fp8::launch {

/// The runs of a sweep, and how they are started.
struct SweepJob {
  std::string folder;                           ///< folder of the sweep; each run has a folder in it
  std::vector<SweepRun> runs;                   ///< with different names
  std::vector<std::string> command;             ///< not empty; the flags of a run are appended
  std::size_t jobs = 1;                         ///< runs at the same time, from 1
  std::int64_t attempts = 3;                    ///< attempts of a run without a newer checkpoint, from 1
  std::chrono::milliseconds patience{300'000};  ///< time limit for processes that a crashed command left running
};

/// State of a run.
enum class RunState : std::uint8_t {
  fresh,       ///< not started yet
  unfinished,  ///< started by an earlier sweep, and not finished
  running,     ///< its command is running
  finished,    ///< the command ended with status 0
  diverged,    ///< the command ended with status 4
  failed,      ///< the command ended otherwise, gave up or could not be started
  stopped,     ///< stopped on request; can be continued
};

/// "fresh", "finished", ...
std::string name_of(RunState state);

/// The state of a run.
struct RunStatus {
  const SweepRun* run = nullptr;                           ///< never null
  std::string folder;                                      ///< its folder
  RunState state = RunState::fresh;                        ///< see RunState
  bool skipped = false;                                    ///< finished or diverged in an earlier sweep
  Exit status = Exit::done;                                ///< exit status of a run that has ended
  std::string reason;                                      ///< why it failed, diverged or is tried again; may be empty
  std::string tail;                                        ///< the last line that its command printed about an error
  std::string cores;                                       ///< hardware threads of its job as "0-2,8"; empty for all
  std::int64_t attempt = 0;                                ///< number of the attempt without a newer checkpoint, from 1
  std::int64_t from = 0;                                   ///< step of the checkpoint from which it was started last
  std::int64_t step = 0;                                   ///< newest step in this sweep; 0 without one
  std::int64_t steps = 0;                                  ///< steps of the whole run; 0 if unknown
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< training loss of the newest step
  double held_out = std::numeric_limits<double>::quiet_NaN();  ///< newest evaluation loss
  double seconds = 0;  ///< time since its job was started; at the end, its length
};

/// Why a run's status is reported.
enum class RunEvent : std::uint8_t {
  started,   ///< a job was started or started its command again
  progress,  ///< there is a newer step
  ended,     ///< the job has ended
};

/// Callbacks while a sweep runs. None may be empty.
struct SweepHooks {
  std::function<void(const RunStatus&, RunEvent)> run;            ///< the status of a run has changed
  std::function<void(int signal, std::size_t running)> stopping;  ///< a stop was requested; so many jobs save and stop
};

/// The words that start a run: `command`, the flags of the run and --out with its folder.
std::vector<std::string> command_of(const SweepJob& job, const SweepRun& run);

/// The states of runs that earlier sweeps have left, in the order of job.runs; writes nothing. A run is skipped if its
/// last command is equal and ended with status 0 or 4. Throws Error when a run was made with other flags of its side or
/// other values.
std::vector<RunStatus> earlier_runs(const SweepJob& job);

/// Runs what earlier_runs() does not skip, in order, and returns the final status of each run. After a request to stop
/// each job saves a checkpoint and ends, and no other is started. If this process is killed, its jobs stop as on
/// request. Throws Error when the folder is used by another sweep, when there are fewer cores than jobs, and as
/// earlier_runs() does.
std::vector<RunStatus> run_sweep(const SweepJob& job, const SweepHooks& hooks);

/// Exit status of the sweep: `again` if a run is to be continued or was not started; else `bad` if one failed without a
/// status of its own or with 2, else `fp8_missing`, else `diverged`, whichever a run has; else `done`.
Exit sweep_exit(std::span<const RunStatus> runs);

}  // namespace fp8::launch
