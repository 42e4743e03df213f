/// Inspection of a checkpoint: what FP8 does to the operands and products of each linear in one forward and backward
/// pass over a batch. Collective: every rank calls with the same configuration.
#pragma once

#include "fp8/settings/config.h"
#include "fp8/train/run.h"

namespace fp8::inspect {

/// For each recipe {"type":"inspect"}, then {"type":"operand"} and {"type":"gemm"} records, as fp8-inspect(1) describes
/// them. The pass runs in the recipe, like a step of training, but the amaxes of activations and gradients are those of
/// all ranks. With `sensitivity` {"type":"sensitivity"} records follow, with `recommend` {"type":"group"} records and
/// {"type":"recommendation"}.
/// Records go to the hook of rank 0. Returns no if the recommendation leaves no linear in FP8, else done. Throws as
/// run().
Exit inspect_checkpoint(const settings::InspectConfig& config, comm::Communicator& host_comm,
                        const state::Hooks& hooks);

}  // namespace fp8::inspect
