/// A step that runs and is timed, for comparison with its plan.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "filled_model.h"
#include "fp8/train/plan.h"
#include "fp8/train/step.h"

namespace fp8::train {

/// The spans of one step on the host, whose scales are calibrated, over token 0 alone. Collective.
inline std::vector<device::Span> timed_step(const comm::Mesh& mesh, const shard::ModelSpec& spec,
                                            const PlannedStep& step) {
  device::Profile profile;
  Context ctx;
  ctx.profile = &profile;
  const device::Buffer scalars(sizeof(StepScalars), device::DeviceType::host, "scalars");
  shard::ShardedModel model(ctx, mesh, spec, device::Arena(std::size_t{64} << 20, device::DeviceType::host));
  test::fill_masters(model, [&](int number, std::int64_t begin, std::int64_t end) {
    const std::int64_t cols = model.store.table()[static_cast<std::size_t>(number)].cols();
    std::vector<float> values;
    for (std::int64_t i = begin * cols; i < end * cols; ++i)
      values.push_back(static_cast<float>((i * 5 + number * 3) % 7 - 3) / 16);
    return values;
  });
  StepEnvironment env{model, mesh.all(), scalars, 0, nullptr, step.aux_loss, step.z_loss};
  const MicroBatches batches(step.micro_batches, step.trained);
  const StepTotals totals{1, 1};
  if (model.store.scales().needs_calibration()) {
    calibrate(env, batches, totals);
    (void)compute(env, batches, totals, false);
    update(env, step.optimizer, step.clip, 0, 0);
  }
  profile.recording = device::Recording::timed;
  (void)compute(env, batches, totals, false);
  update(env, step.optimizer, step.clip, 1, 0);
  return profile.spans();
}

}  // namespace fp8::train
