/// The passes of a step on one rank: forward and backward over its micro-batches in the order of its stage, and what
/// goes between stages; and passes without backward, of an evaluation. With one stage micro-batches are computed one
/// after the other. Not the schedule (model) and not the update (train).
///   M micro-batches, P stages
#pragma once

#include <functional>
#include <optional>

#include "fp8/shard/sharded_model.h"

namespace fp8::shard {

/// The micro-batches of a step, by number from 0 to M - 1.
struct StepPasses {
  int count = 1;             ///< M
  float gradient_scale = 1;  ///< factor of the losses
  /// Micro-batch i, with views on the context's device; memory that they need comes from `memory`.
  std::function<model::Batch(const Context& ctx, device::PooledMemory& memory, int i)> batch;
  /// The position of micro-batch i.
  std::function<BatchPosition(int i)> position = [](int) { return BatchPosition{}; };
  /// Called on the last stage with the losses of each micro-batch, f32 [rows], in order.
  std::function<void(const View& losses)> losses = [](const View&) {};
};

/// Times of the passes on this rank, seconds. On a GPU they are those of the host, which does not wait for the device.
struct PassTimes {
  double busy = 0;   ///< spent in computation
  double total = 0;  ///< until the end of the last pass, with waits for other stages
};

/// Computes forward and backward of all micro-batches, whose gradients are then in model.store.gradients() until its
/// finish(). With several stages activations and their gradients travel in their type. A send is started when its
/// values are computed; a receive on the host before the action that precedes the one which needs it, on a GPU
/// together with the send before it. Collective.
PassTimes run_passes(ShardedModel& model, const StepPasses& passes);

/// Forward passes without backward that follow each other through the stages. All ranks work in turns: in turn t stage
/// s computes the pass t - s and sends its result to the next stage in turn t + 1, which computes on it there. So all
/// stages compute in the same turn, each another pass, and between two turns no message is under way: an error on which
/// the ranks agree there leaves no rank waiting. A stage holds the result of one pass, and in the middle of the stages
/// the input of the next one beside it.
class ForwardPasses {
 public:
  /// `model` outlives the passes.
  explicit ForwardPasses(ShardedModel& model) : model_(model) {}
  /// This stage's part of the next pass: sends the result of the pass before, receives the input and computes. `head`
  /// is called on the last stage with the hidden state of all layers, for losses or logits. All stages compute the same
  /// number of rows in a pass. Collective of all stages in the same turn, of which each calls this or send().
  void compute(const model::Batch& batch, const std::function<void(model::MicroBatch&)>& head);
  /// Sends the result of the last pass, unless it was sent or this is the last stage.
  void send();

 private:
  void exchange(model::MicroBatch* next);

  ShardedModel& model_;
  std::optional<model::MicroBatch> computed_;  // a pass whose result was not sent yet
  std::int64_t count_ = 0;                     // passes of this stage so far
};

/// Decoder::forward() through the stages, one after the other: losses f32 [rows] on the last one, undefined on others.
/// Collective.
void forward(ShardedModel& model, const model::Batch& batch, const View& losses);

/// Logits [n, V] of the rows [first, first + n) in the same way, in the activations' type or f32: `out` is undefined on
/// stages other than the last. Collective.
void logits(ShardedModel& model, const model::Batch& batch, std::int64_t first, const View& out);

}  // namespace fp8::shard
