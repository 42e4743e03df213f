/// The arithmetic of the loss's gradient on one logit, shared by the host's loops and the kernels, so that both round
/// alike. `shift` is the row's largest logit, `inverse` one over the row's sum of exp(x - shift).
#pragma once

#include "vector_math.h"

namespace fp8::ops {

/// The gradient of a logit that is not the target; factor = inverse * gradient_scale.
template <class T>
FP8_HD inline T logit_gradient(T x, float shift, float factor) {
  return dtype::from_float<T>(exp_for<T>(dtype::to_float(x) - shift) * factor);
}

/// The gradient of the target, `difference` = x - shift.
template <class T>
FP8_HD inline T target_gradient(float difference, float inverse, float gradient_scale) {
  return dtype::from_float<T>((exp_for<T>(difference) * inverse - 1.0f) * gradient_scale);
}

}  // namespace fp8::ops
