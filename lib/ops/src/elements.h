/// The arithmetic of RMSNorm, rotary positions, SwiGLU and cross-entropy on single elements, shared by host loops and
/// kernels, for identical rounding. Private to this crate.
#pragma once

#include <cmath>
#include <cstdint>

#include "fp8/dtype/element.h"
#include "vector_math.h"

namespace fp8::ops {

/// x * rstd, rounded to the activation type.
template <class T>
FP8_HD inline float normalized(T x, float rstd) {
  return dtype::to_float(dtype::from_float<T>(dtype::to_float(x) * rstd));
}

/// weight * round(x * rstd).
template <class T>
FP8_HD inline T norm_output(T x, float rstd, T weight) {
  return dtype::from_float<T>(normalized(x, rstd) * dtype::to_float(weight));
}

/// One summand of the row's sum of dy weight x rstd.
template <class T>
FP8_HD inline float norm_dot(T dy, T x, T weight, float rstd) {
  return dtype::to_float(dy) * dtype::to_float(weight) * (dtype::to_float(x) * rstd);
}

/// The gradient of x, given the mean over the row of norm_dot.
template <class T>
FP8_HD inline float norm_gradient(T dy, T x, T weight, float rstd, float mean) {
  return rstd * (dtype::to_float(dy) * dtype::to_float(weight) - dtype::to_float(x) * rstd * mean);
}

/// Cosine and sine of position * inv_freq, the angle rounded to f32 as transformers does.
FP8_HD inline void rope_angle(std::int64_t position, float inv_freq, float& cos, float& sin) {
  const float angle = static_cast<float>(position) * inv_freq;
  cos = static_cast<float>(std::cos(static_cast<double>(angle)));
  sin = static_cast<float>(std::sin(static_cast<double>(angle)));
}

/// (a, b) -> (a cos - b sin, b cos + a sin).
template <class T>
FP8_HD inline void rotate(T& a, T& b, float cos, float sin) {
  const float x = dtype::to_float(a), y = dtype::to_float(b);
  a = dtype::from_float<T>(x * cos - y * sin);
  b = dtype::from_float<T>(y * cos + x * sin);
}

/// silu(gate) * up, before it is rounded to T.
template <class T>
FP8_HD inline float swiglu_value(float gate, float up) {
  return silu<T>(gate) * up;
}

/// silu(gate) * up.
template <class T>
FP8_HD inline T swiglu_output(T gate, T up) {
  return dtype::from_float<T>(swiglu_value<T>(dtype::to_float(gate), dtype::to_float(up)));
}

/// The gradient of gate, given that of the output, before it is rounded to T.
template <class T>
FP8_HD inline float swiglu_gate_gradient(float d, float gate, float up) {
  const float s = sigmoid<T>(gate);
  return d * up * s * __builtin_fmaf(gate, 1.0f - s, 1.0f);
}

/// The gradient of up, given that of the output, before it is rounded to T.
template <class T>
FP8_HD inline float swiglu_up_gradient(float d, float gate) {
  return d * silu<T>(gate);
}

/// The gradients of gate and up, given that of the output, before they are rounded to T.
template <class T>
FP8_HD inline void swiglu_gradient_values(float d, float gate, float up, float& d_gate, float& d_up) {
  d_gate = swiglu_gate_gradient<T>(d, gate, up);
  d_up = swiglu_up_gradient<T>(d, gate);
}

/// The gradients of gate and up, given that of the output.
template <class T>
FP8_HD inline void swiglu_gradients(T d_out, T gate, T up, T& d_gate, T& d_up) {
  float of_gate = 0, of_up = 0;
  swiglu_gradient_values<T>(dtype::to_float(d_out), dtype::to_float(gate), dtype::to_float(up), of_gate, of_up);
  d_gate = dtype::from_float<T>(of_gate);
  d_up = dtype::from_float<T>(of_up);
}

/// Gradient of the loss with respect to a logit that is not the target, before it is rounded to T. `shift` is the
/// largest logit of the row, factor = gradient_scale / (sum of exp(x - shift) over the row).
template <class T>
FP8_HD inline float logit_gradient_value(float x, float shift, float factor) {
  return exp_for<T>(x - shift) * factor;
}

/// Gradient with respect to the logit of the target, before it is rounded to T; `difference` = x - shift, `inverse` = 1
/// / (sum of exp(x - shift)).
template <class T>
FP8_HD inline float target_gradient_value(float difference, float inverse, float gradient_scale) {
  return (exp_for<T>(difference) * inverse - 1.0f) * gradient_scale;
}

/// Gradient with respect to a logit that is not the target.
template <class T>
FP8_HD inline T logit_gradient(T x, float shift, float factor) {
  return dtype::from_float<T>(logit_gradient_value<T>(dtype::to_float(x), shift, factor));
}

/// Gradient with respect to the logit of the target.
template <class T>
FP8_HD inline T target_gradient(float difference, float inverse, float gradient_scale) {
  return dtype::from_float<T>(target_gradient_value<T>(difference, inverse, gradient_scale));
}

/// The loss of a row of logits of which ranks have parts, from what they have reduced.
struct PartLoss {
  float shift;                       ///< the largest logit of the row
  float sum, inverse;                ///< of exp(x - shift) over the row, and its reciprocal
  float difference, gradient_scale;  ///< logit of the target less the largest; factor of gradients

  FP8_HD PartLoss(float largest, float sum_of_exp, float at_target, float scale)
      : shift(largest),
        sum(sum_of_exp),
        inverse(1.0f / sum_of_exp),
        difference(at_target - largest),
        gradient_scale(scale) {}
  /// In nats.
  FP8_HD float loss() const {
    return static_cast<float>(std::log(static_cast<double>(sum)) - static_cast<double>(difference));
  }
  /// The gradient of a logit, the target or another.
  template <class T>
  FP8_HD T gradient(T x, bool target) const {
    return target ? target_gradient<T>(difference, inverse, gradient_scale)
                  : logit_gradient(x, shift, inverse * gradient_scale);
  }
};

}  // namespace fp8::ops
