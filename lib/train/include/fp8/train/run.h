/// A training run from the first check to the last record. Collective: every rank calls with the same configuration.
#pragma once

#include <functional>
#include <string>

#include "fp8/base/error.h"
#include "fp8/comm/comm.h"
#include "fp8/train/config.h"

namespace fp8::train {

/// Callbacks of a run or an evaluation. Called on rank 0 only, except begins and stop_requested.
struct Hooks {
  std::function<void(const json::Value&)> record;    ///< a record for standard output; log.jsonl has it already
  std::function<void(const std::string&)> note;      ///< one or more lines of information
  std::function<void(const std::string&)> warning;   ///< a line about a failure that does not end the run
  std::function<void(const std::string&)> progress;  ///< the current activity, for one line that is overwritten
  std::function<void()> begins;                      ///< on every rank, before anything is computed or written
  std::function<bool()> stop_requested;              ///< on every rank after each step; true ends the run
};

/// Trains, or only plans if RunConfig::dry_run. `host_comm` moves host memory between the ranks. Returns done, or again
/// if a stop was requested. Throws the same Error on every rank: bad for input, fp8_missing if FP8 was requested and
/// less ran than was planned, diverged after many skipped steps in a row.
Exit run(const RunConfig& config, comm::Communicator& host_comm, const Hooks& hooks);

}  // namespace fp8::train
