/// What the decoder asks of whoever holds its parameters: weights of a unit, ready for a pass, and memory for its
/// gradients. How they are sharded, gathered and reduced is behind this interface (train); the decoder never knows.
/// Units: 0 embedding, 1..L layers, L+1 final norm and head. A tied head is unit 0's embedding.
#pragma once

#include <array>

#include "fp8/linear/linear.h"
#include "fp8/model/parameters.h"

namespace fp8::model {

using device::Context;
using linear::Pass;
using tensor::View;

/// Weights of one unit, by slot.
struct UnitWeights {
  std::array<linear::Weight, kSlots> matmul;  ///< linears, with their biases; the head too
  std::array<View, kSlots>
      plain;  ///< embedding [V, C] and norms [C] or [D], in the activations' type; empty where absent

  /// Weight of a linear's slot.
  const linear::Weight& of(Slot slot) const { return matmul[static_cast<std::size_t>(slot)]; }
  /// Embedding or norm.
  const View& vector(Slot slot) const { return plain[static_cast<std::size_t>(slot)]; }
};

/// f32 memory for the gradients of one unit, whole tensors by slot; empty where a slot is absent or frozen.
struct UnitGradients {
  std::array<View, kSlots> slot;  ///< as slot_extent says
  bool accumulate =
      false;  ///< add to what is there; otherwise its content is undefined and the first writer overwrites

  /// Memory of a slot.
  const View& of(Slot s) const { return slot[static_cast<std::size_t>(s)]; }
};

/// Holder of parameters. Calls come in the order of computation, from one thread.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The unit will be needed soon: start what takes time.
  virtual void prefetch(int unit) = 0;
  /// Weights of a unit, prepared for a pass; what preparing needs is taken from the context's arena, so the result
  /// lives until release() and the end of the caller's arena scope, whichever is first.
  virtual UnitWeights acquire(const Context& ctx, int unit, Pass pass) = 0;
  /// The unit's weights are not used until the next acquire().
  virtual void release(int unit) = 0;
  /// Where the gradients of a unit go; valid until gradients_done().
  virtual UnitGradients gradients(int unit) = 0;
  /// The gradients of a unit are complete for this micro-batch.
  virtual void gradients_done(int unit) = 0;
};

}  // namespace fp8::model
