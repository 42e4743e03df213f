/// All weights of a checkpoint in the memory of one process, prepared once for forward passes: for generation, where
/// each token needs every weight. Training shards them instead (train).
#pragma once

#include <vector>

#include "fp8/convert/open.h"
#include "fp8/model/weights.h"

namespace fp8::generate {

using device::Context;
using dtype::DType;
using model::Pass;
using tensor::View;

/// Weights for forward passes, in host memory.
class ResidentWeights final : public model::ParameterAccess {
 public:
  /// Allocates all memory from the context's arena, category "weights", and reads the weights, unless the context is
  /// dry. Weights are converted to `compute` (f32 or bf16). With a recipe in `precision`, linears with compute
  /// precision fp8 become FP8 operands of it; codes of a quantized checkpoint are used as they are, and without a
  /// recipe multiplied by their scales. Throws Error naming a weight that is not finite after that.
  ResidentWeights(const Context& ctx, const convert::OpenModel& model, dtype::DType compute,
                  const linear::LinearPrecision& precision);

  /// Nothing to do.
  void prefetch(int unit, model::Pass pass) override;
  /// The unit's weights, for Pass::forward; valid as long as the arena.
  model::UnitWeights unshard(const Context& ctx, int unit, Pass pass) override;
  /// Throws std::logic_error: weights for forward passes have no gradients.
  model::UnitGradients gradient_buffers(int unit) override;
  /// Throws as gradient_buffers().
  void gradients_done(int unit) override;

  /// Bytes of the matrices that a pass over few tokens reads.
  double bytes_read() const { return bytes_; }
  /// Number of linears that compute in FP8.
  int fp8_linears() const { return fp8_linears_; }

 private:
  void count(const linear::Weight& weight);

  std::vector<model::UnitWeights> units_;
  double bytes_ = 0;
  int fp8_linears_ = 0;
};

}  // namespace fp8::generate
