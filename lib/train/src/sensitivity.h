// The effect of each FP8 GEMM alone on the loss and the gradient, and which linears to leave in bf16. Private to the
// crate.
#pragma once

#include <vector>

#include "inspect_model.h"

namespace fp8::train {

// The effect of the forward GEMM of one linear.
struct Sensitivity {
  int linear = 0;          // number in the table
  double loss_change = 0;  // nats, against bf16
};

// Emits a {"type":"sensitivity"} record for each GEMM of each linear that --layers selects, in FP8 alone while all
// others are in bf16: the change of the loss for forward, cosine and relative difference of the gradient of all weights
// for dgrad and wgrad. Returns the former. Collective.
std::vector<Sensitivity> measure_sensitivity(const RecipeSetup& setup, const Inspection& all,
                                             const DeviceSetup& device);

// Chooses the fewest of the linears to leave in bf16 such that the sum of |loss_change| of the others is below
// InspectConfig::recommend, measures that choice, writes it to the output and emits {"type":"recommendation"}. Returns
// whether a linear is left in FP8. Collective.
bool recommend(const RecipeSetup& setup, const Inspection& all, const DeviceSetup& device,
               const std::vector<Sensitivity>& measured);

}  // namespace fp8::train
