/// Delayed scaling: the scale of a tensor follows from the amaxes of earlier steps, so that it is known before the
/// cast, and the cast records the amax for later ones. Histories are memory of the caller; nothing is kept here.
/// Source: Transformer Engine delayed_scaling.cu; checked bit for bit against tests/golden/casts/delayed.h5.
#pragma once

#include <cstdint>
#include <span>

#include "fp8/dtype/element.h"
#include "fp8/quant/scale.h"
#include "fp8/tensor/tensor.h"

namespace fp8::quant {

/// The amax of a history: the largest, or that of the last step.
enum class AmaxAlgorithm : std::uint8_t { max, most_recent };

/// The rule from a history to a scale.
struct DelayedRule {
  float max = 448.0f;                            ///< largest value of the format, times 2^-margin
  AmaxAlgorithm algorithm = AmaxAlgorithm::max;  ///< choice of the amax of the history that gives the scale
};

/// The rule for a format (e4m3 or e5m2) with a margin of powers of two.
DelayedRule delayed_rule(dtype::DType format, std::int64_t margin, AmaxAlgorithm algorithm);

/// The larger of two amaxes; a NaN in `b` is left out.
FP8_HD inline float larger_amax(float a, float b) { return b > a ? b : a; }

/// max / amax, an overflow becoming the largest finite f32; `previous` if the amax is 0, infinite or NaN.
FP8_HD inline float delayed_scale(float amax, float max, float previous) {
  return amax > 0.0f && amax <= kLargestFloat ? current_scale(amax, max, false) : previous;
}

/// Ends a step of one tensor: history[0] is its amax in this step. Returns the next scale. The history moves by one:
/// the oldest amax, history[1], is dropped after it has counted a last time, and history[0] becomes 0. Nothing changes
/// if history[0] is 0.
float update_history(std::span<float> history, const DelayedRule& rule, float scale);

/// Scales of n tensors under one rule, f32, contiguous, on the context's device.
struct ScaleSlots {
  tensor::View amax;           ///< [n] of this step; 0: none was recorded
  tensor::View history;        ///< [n, length]
  tensor::View scale;          ///< [n]
  tensor::View inverse_scale;  ///< [n] reciprocals
};

/// Ends a step: update_history() of every tensor that has a finite amax; an infinite or NaN one is not entered, so that
/// it does not hold the scale for the length of the history. `skip` (may be null) is one number on the device: if it is
/// not 0, the step was skipped and no history changes. Always sets the reciprocals, and the amaxes to 0.
void update_scales(const device::Context& ctx, const ScaleSlots& slots, const DelayedRule& rule,
                   const std::int32_t* skip);

}  // namespace fp8::quant
