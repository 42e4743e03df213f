// The record of a step, from a dry run of the step.
#include "record_step.h"

#include <algorithm>

#include "fp8/train/plan.h"

namespace fp8::plan {
namespace {

// Size of a block of logits: as in the run, but at most 1024 blocks are recorded. A micro-batch that has more of them
// fits into no memory, and the dry run takes longer with each.
std::int64_t logit_bytes(const Run& run, device::DeviceType device) {
  constexpr std::int64_t kBlocks = 1024;
  const std::int64_t of_run = device == device::DeviceType::cuda ? model::kMostLogits : model::kLeastLogits;
  const auto size = static_cast<std::int64_t>(size_of(run.spec.store.compute));
  return std::max(of_run, (run.batch_size * run.length / kBlocks + 1) * run.spec.config.vocab_size * size);
}

}  // namespace

// The first, a middle and the last micro-batch differ, and a stage of a pipeline begins with several.
Record recorded_step(const Run& run, int rank, const Machine& machine, double imbalance) {
  const comm::Mesh mesh = comm::Mesh::imagined(run.mesh, rank, run.ranks_per_node);
  shard::ModelSpec spec = run.spec;
  spec.execution.logit_bytes = logit_bytes(run, machine.device);
  train::PlannedStep step;
  step.trained = run.shape();
  step.micro_batches = static_cast<int>(std::min<std::int64_t>(run.micro_batches, run.mesh.pp + 2));
  step.compute_capability = machine.compute_capability;
  step.imbalance = imbalance;
  return Record(train::plan_step({machine.device}, mesh, spec, step));
}

}  // namespace fp8::plan
