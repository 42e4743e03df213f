/// The arithmetic of RMSNorm on one element, shared by the host's loops and the kernels, so that both round alike.
#pragma once

#include "fp8/dtype/element.h"

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

/// What an element adds to the row's sum of dy weight x rstd.
template <class T>
FP8_HD inline float norm_dot(T dy, T x, T weight, float rstd) {
  return dtype::to_float(dy) * dtype::to_float(weight) * (dtype::to_float(x) * rstd);
}

/// The gradient of x, given the mean over the row of norm_dot.
template <class T>
FP8_HD inline float norm_gradient(T dy, T x, T weight, float rstd, float mean) {
  return rstd * (dtype::to_float(dy) * dtype::to_float(weight) - dtype::to_float(x) * rstd * mean);
}

}  // namespace fp8::ops
