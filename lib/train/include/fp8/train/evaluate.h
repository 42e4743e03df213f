/// Evaluation of a checkpoint: loss over a token file. Collective: every rank calls with the same configuration. The
/// evaluations during a run are part of the run (run.h).
#pragma once

#include "fp8/settings/config.h"
#include "fp8/train/run.h"

namespace fp8::train {

/// Loss of a checkpoint over all whole sequences of a token file, in file order: with per_token {"type":"sequence"}
/// records, then {"type":"eval"}. Ranks share the work; records go to the hook of rank 0. Throws as run().
void evaluate(const settings::EvalConfig& config, comm::Communicator& host_comm, const state::Hooks& hooks);

}  // namespace fp8::train
