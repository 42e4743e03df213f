// The recommendation of linears to leave in bf16, as a configuration of a run. Private to the crate.
#pragma once

#include "sensitivity.h"

namespace fp8::inspect {

// Chooses the fewest of the measured linears to leave in bf16 such that the sum of |loss_change| of the others is below
// InspectConfig::recommend. Measures the loss under the configuration that has only those others in FP8, writes this to
// the output and emits {"type":"recommendation"}. Returns whether a linear is left in FP8; if none is, nothing is
// written. Collective.
bool recommend(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device,
               const LossChanges& measured);

}  // namespace fp8::inspect
