/// A training run from the first check to the last record. Collective: every rank calls with the same configuration.
#pragma once

#include "fp8/base/error.h"
#include "fp8/comm/comm.h"
#include "fp8/settings/config.h"
#include "fp8/state/journal.h"

namespace fp8::train {

/// Trains, or only plans if RunConfig::dry_run. `host_comm` moves host memory between the ranks. Returns done, or again
/// if a stop was requested. Throws the same Error on every rank: bad for input, fp8_missing if FP8 was requested and
/// less ran than was planned, diverged after many skipped steps in a row.
Exit run(const settings::RunConfig& config, comm::Communicator& host_comm, const state::Hooks& hooks);

/// The flags of a run as --print-config writes them: RunConfig::flags with the precision that the run goes on in, and
/// with the number of steps that --epochs gives. Throws the Error that run() would throw for settings which contradict
/// each other or do not fit the model, the data or the checkpoint to resume; if MODEL or the data does not exist, or
/// MODEL is standard input, only that for settings alone, see settings::printed_config(). The data, the folder of the
/// run and the number of steps may be left open. Writes nothing. Collective.
json::Value printed_config(settings::RunConfig config, comm::Communicator& host_comm);

}  // namespace fp8::train
