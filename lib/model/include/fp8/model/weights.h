/// Interface between the decoder and the holder of its parameters: the weights of a unit, ready for a pass, and memory
/// for the gradients of a unit. Crate shard implements it with sharding, all-gather and reduce-scatter. Unit 0 is the
/// embedding, units 1 to L are the layers, and L + 1 is final norm and head. A tied head is unit 0's embedding.
#pragma once

#include <array>
#include <vector>

#include "fp8/linear/linear.h"
#include "fp8/model/exchange.h"
#include "fp8/model/parameters.h"

namespace fp8::model {

using device::Context;
using linear::Pass;
using tensor::View;

/// Weights of one unit, by slot.
struct UnitWeights {
  std::array<linear::Weight, kSlots>
      matmul;  ///< linears, with their biases and adapters; the head too, but not the linears of experts
  std::array<View, kSlots>
      plain;  ///< embedding [V, C], norms [C] or [D], router [E, C], in the activations' type; empty where absent
  std::vector<linear::Weight> experts_gate_up{},
      experts_down{};                  ///< linears of experts, with their adapters, by number
  linear::NeededAmaxes down_before{};  ///< amaxes that `down` of the layer before needs, in backward of a layer

  /// The weights of a slot of experts; null for another slot.
  std::vector<linear::Weight>* experts_of(Slot slot) {
    return slot == Slot::experts_gate_up ? &experts_gate_up : slot == Slot::experts_down ? &experts_down : nullptr;
  }
  /// Weight of a linear's slot.
  const linear::Weight& of(Slot slot) const { return matmul[static_cast<std::size_t>(slot)]; }
  /// Embedding or norm.
  const View& vector(Slot slot) const { return plain[static_cast<std::size_t>(slot)]; }
};

/// f32 memory for the gradients of one unit, whole tensors by slot; empty if a slot is absent or frozen.
struct UnitGradients {
  std::array<View, kSlots> slot;  ///< all rows of a slot; of the experts of this rank
  /// Add to the existing values; if false, these are undefined and the first writer overwrites them.
  bool accumulate = false;

  /// Memory of a slot.
  const View& of(Slot s) const { return slot[static_cast<std::size_t>(s)]; }
};

/// Holder of parameters. Called in the order of computation, from one thread.
class ParameterAccess {
 public:
  virtual ~ParameterAccess() = default;
  /// The ranks that share experts; null: this rank has all of them. UnitWeights and UnitGradients have the experts of
  /// this rank only.
  virtual ExpertExchange* exchange() { return nullptr; }
  /// The ranks that divide linears.
  virtual TensorExchange& tensor() { return one_rank_; }
  /// Starts asynchronous work, such as an all-gather, for a unit that will soon be unsharded for this pass.
  virtual void prefetch(int unit, Pass pass) = 0;
  /// Unshards a unit: returns its weights, prepared for a pass. They are valid until the end of the caller's arena
  /// scope. Weights of a layer also become invalid when another layer is unsharded, since layers may share buffers.
  virtual UnitWeights unshard(const Context& ctx, int unit, Pass pass) = 0;
  /// Memory for the gradients of a unit; valid until gradients_done().
  virtual UnitGradients gradient_buffers(int unit) = 0;
  /// The gradients of a unit are complete for this micro-batch.
  virtual void gradients_done(int unit) = 0;

 private:
  TensorExchange one_rank_;
};

}  // namespace fp8::model
