// The effect of each FP8 GEMM alone on the loss and the gradient. Private to the crate.
#pragma once

#include <vector>

#include "inspect_model.h"

namespace fp8::inspect {

// The effect of the forward GEMM of one linear.
struct Sensitivity {
  int linear = 0;          // number in the table
  double loss_change = 0;  // nats, against bf16
};

// The changes of the loss by the forward GEMM of each linear alone.
struct LossChanges {
  double loss = 0;                   // mean, in bf16
  std::vector<Sensitivity> linears;  // linears with forward in FP8 among the ones that --layers selects
};

// Emits a {"type":"sensitivity"} record for each GEMM of each linear that --layers selects, in FP8 alone while all
// others are in bf16: the change of the loss for forward, cosine and relative difference of the gradient of all weights
// for dgrad and wgrad. Returns the former. Collective.
LossChanges measure_sensitivity(const RecipeSetup& setup, const Inspection& all, const train::DeviceSetup& device);

}  // namespace fp8::inspect
