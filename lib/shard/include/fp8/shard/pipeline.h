/// The passes of a step on one rank: forward and backward over its micro-batches in the order of its stage, and what
/// goes between stages. With one stage micro-batches are computed one after the other. Not the schedule (model) and not
/// the update (train).
///   M micro-batches, P stages
#pragma once

#include <functional>

#include "fp8/shard/sharded_model.h"

namespace fp8::shard {

/// The micro-batches of a step, by number from 0 to M - 1.
struct StepPasses {
  int count = 1;             ///< M
  float gradient_scale = 1;  ///< factor of the losses
  /// Micro-batch i, with views on the context's device; memory that they need comes from `memory`.
  std::function<model::Batch(const Context& ctx, device::PooledMemory& memory, int i)> batch;
  /// The position of micro-batch i for dropout.
  std::function<DropoutPosition(int i)> position;
  /// Called on the last stage with the losses of each micro-batch, f32 [rows], in order.
  std::function<void(const View& losses)> losses;
};

/// Times of the passes on this rank, seconds. On a GPU they are those of the host, which does not wait for the device.
struct PassTimes {
  double busy = 0;   ///< spent in computation
  double total = 0;  ///< until the end of the last pass, with waits for other stages
};

/// Computes forward and backward of all micro-batches, whose gradients are then in model.store until
/// finish_gradients(). With several stages activations and their gradients travel in their type. A send is started when
/// its values are computed; a receive on the host before the action that precedes the one which needs it, on a GPU
/// together with the send before it. Collective.
PassTimes run_passes(ShardedModel& model, const StepPasses& passes);

/// Decoder::forward() through the stages: losses f32 [rows] on the last one, undefined on others. Collective.
void forward(ShardedModel& model, const model::Batch& batch, const View& losses);

}  // namespace fp8::shard
