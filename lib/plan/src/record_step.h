// The operations of a step. Private to the crate.
#pragma once

#include "fp8/plan/machine.h"
#include "fp8/plan/price.h"
#include "fp8/plan/run.h"

namespace fp8::plan {

// What `rank` of a run computes in a step of as many micro-batches as show all kinds of them, from a dry run of the
// step.
Record recorded_step(const Run& run, int rank, const Machine& machine, double imbalance);

}  // namespace fp8::plan
