/// Runs a command to the end of its run: from the newest valid checkpoint, phase after phase of a plan, again after a
/// crash. What fp8-resume(1) does.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/json/value.h"
#include "fp8/launch/plan.h"

namespace fp8::launch {

/// What to run.
struct Job {
  std::string run;                              ///< folder of the run
  std::optional<Plan> plan;                     ///< phases; none for a single command
  std::int64_t attempts = 3;                    ///< attempts without a newer checkpoint before giving up, from 1
  std::vector<std::string> command;             ///< not empty
  bool dry_run = false;                         ///< say what would be launched first, write nothing
  std::chrono::milliseconds patience{300'000};  ///< for processes that a crashed command left behind
};

/// Where decisions and the command's output go. None may be empty.
struct Hooks {
  std::function<void(const json::Value&)> record;  ///< one for each decision
  std::function<void(const std::string&)> note;    ///< the same for people, a line without newline
  std::function<void(std::string_view)> out;       ///< the command's standard output, whole lines
  std::function<void(std::string_view)> err;       ///< the command's standard error
};

/// Runs the job. Returns done; again when a stop was asked and a checkpoint is there; the status 2, 3 or 4 of the
/// command. Throws Error when it gives up, when every checkpoint is damaged, when another one is at work in the folder,
/// and what `out` or `record` throw, once the command has stopped.
Exit supervise(const Job& job, const Hooks& hooks);

/// A checkpoint and the step in its /train.
struct Found {
  std::string path;       ///< of the checkpoint
  std::int64_t step = 0;  ///< updates completed
};

/// The newest valid checkpoint of `run`. Each damaged one that is passed over is told to `record` and `note`.
std::optional<Found> find_newest(const std::string& run, const std::function<void(const json::Value&)>& record,
                                 const std::function<void(const std::string&)>& note);

}  // namespace fp8::launch
