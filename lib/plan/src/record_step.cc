// The record of a step, from a dry run of the step.
#include "record_step.h"

#include <algorithm>

#include "fp8/train/plan.h"

namespace fp8::plan {

// The first, a middle and the last micro-batch differ, and a stage of a pipeline begins with several.
Record recorded_step(const Run& run, int rank, const Machine& machine, double imbalance) {
  const comm::Mesh mesh = comm::Mesh::imagined(run.mesh, rank, run.ranks_per_node);
  shard::ModelSpec spec = run.spec;
  spec.execution.logit_bytes = machine.device == device::DeviceType::cuda ? model::kMostLogits : model::kLeastLogits;
  train::PlannedStep step;
  step.trained = run.shape();
  step.micro_batches = static_cast<int>(std::min<std::int64_t>(run.micro_batches, run.mesh.pp + 2));
  step.compute_capability = machine.compute_capability;
  step.imbalance = imbalance;
  return Record(train::plan_step({machine.device}, mesh, spec, step));
}

}  // namespace fp8::plan
