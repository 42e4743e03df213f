// Which linears not to run in a recipe, as a configuration of a run. Private to the crate.
#pragma once

#include "sensitivity.h"

namespace fp8::inspect {

// Chooses the groups that hurt beyond noise, as few as possible such that the harm of the others that hurt adds up to
// less than InspectConfig::recommend. Measures the loss under the configuration that has the chosen ones in bf16, or in
// InspectConfig::recommend_recipe, and the rest in FP8, writes this to the output and emits {"type":"recommendation"}.
// Returns whether a linear is in FP8; if none is, nothing is written. Collective.
bool recommend(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device,
               const LossChanges& measured);

}  // namespace fp8::inspect
