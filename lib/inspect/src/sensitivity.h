// The effect of FP8 GEMMs alone on the loss and the gradient. Private to the crate.
#pragma once

#include <vector>

#include "inspect_model.h"
#include "paired.h"

namespace fp8::inspect {

// Linears whose forward GEMMs run in FP8 together, while all others are in bf16.
struct Sensitivity {
  std::vector<int> linears;  // numbers in the table
  LossChange change;         // against bf16
};

// What was measured over all batches.
struct LossChanges {
  double loss = 0;                    // mean over the targets of all ranks, in bf16
  std::vector<double> losses;         // of this rank's sequences in bf16, summed over their targets
  std::vector<std::int64_t> targets;  // of these sequences
  // With InspectConfig::recommend: linears of one input (q, k, v; gate, up; each other alone), which servers compute in
  // one precision. Those with forward in FP8 of each group of which --layers selects a linear.
  std::vector<Sensitivity> groups;
};

// With InspectConfig::sensitivity, emits a {"type":"sensitivity"} record for each GEMM of each linear that --layers
// selects, in FP8 alone while all others are in bf16: the change of the loss for forward, cosine and relative
// difference of the gradient of all weights for dgrad and wgrad. With InspectConfig::recommend, emits a
// {"type":"group"} record with the change of the loss of each group. Collective.
LossChanges measure_sensitivity(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device);

}  // namespace fp8::inspect
