// The parts of run_step() in a dry context that records.
#include "fp8/train/plan.h"

#include "fp8/train/step.h"

namespace fp8::train {

std::vector<device::Span> plan_step(const device::Context& at, const comm::Mesh& mesh, const shard::ModelSpec& spec,
                                    const PlannedStep& step) {
  device::Profile profile;
  profile.recording = device::Recording::planned;
  profile.compute_capability = step.compute_capability;
  profile.imbalance = step.imbalance;
  Context recording = at;
  recording.profile = &profile;
  shard::ShardedModel model(recording, mesh, spec, device::Arena());
  model.store.scales().assume_calibrated();
  const device::Buffer scalars(sizeof(StepScalars), device::DeviceType::host, "scalars of a step");  // never accessed
  StepEnvironment env{model, mesh.all(), scalars, 0, nullptr, step.aux_loss, step.z_loss};
  const MicroBatches batches(step.micro_batches, step.trained);
  profile.clear();  // of the zeros that memory begins with
  (void)compute(env, batches, {1, 1}, false);
  update(env, step.optimizer, step.clip, 0, 0);
  return profile.spans();
}

}  // namespace fp8::train
