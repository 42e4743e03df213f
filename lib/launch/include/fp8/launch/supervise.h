/// Runs a training command to the end of its run: starts from the newest valid checkpoint, runs the phases in order,
/// restarts the command after a crash. The library part of fp8-resume(1).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/ckpt/find.h"
#include "fp8/json/value.h"
#include "fp8/launch/phases.h"

namespace fp8::launch {

/// Command, phases and run folder.
struct Job {
  std::string run;                              ///< folder of the run
  std::optional<Phases> phases;                 ///< nullopt to run the command without phases
  std::int64_t attempts = 3;                    ///< attempts without a newer checkpoint before giving up, from 1
  std::vector<std::string> command;             ///< words of the command, at least one
  bool dry_run = false;                         ///< report the first launch, start and write nothing
  std::chrono::milliseconds patience{300'000};  ///< time limit for processes that a crashed command left running
};

/// Callbacks for decisions and for the output of the command. None may be empty.
struct Hooks {
  std::function<void(const json::Value&)> record;  ///< one JSON record per decision
  std::function<void(const std::string&)> note;    ///< the decision as a line of text without newline
  std::function<void(std::string_view)> out;       ///< the command's standard output, whole lines
  std::function<void(std::string_view)> err;       ///< the command's standard error
};

/// Runs the job. Returns done; again after a requested stop with a checkpoint; or the command's status 2, 3 or 4.
/// Throws Error after job.attempts attempts without progress, when every checkpoint is damaged, and when another
/// supervisor or its command uses the folder. Rethrows exceptions of `out` and `record` after the command has stopped.
Exit supervise(const Job& job, const Hooks& hooks);

/// A checkpoint and the step in its /train document.
struct Found {
  std::string path;       ///< path of the checkpoint
  std::int64_t step = 0;  ///< updates completed
};

/// The newest or the best valid checkpoint of `run`; nullopt without one. Calls `record` (with a `reason`) and `note`
/// for each damaged checkpoint that is skipped.
std::optional<Found> find_checkpoint(const std::string& run, ckpt::Which which,
                                     const std::function<void(const json::Value&)>& record,
                                     const std::function<void(const std::string&)>& note);

}  // namespace fp8::launch
