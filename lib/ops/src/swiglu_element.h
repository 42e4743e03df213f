/// The arithmetic of SwiGLU on one element, shared by the host's loops and the kernels, so that both round alike.
#pragma once

#include "vector_math.h"

namespace fp8::ops {

/// silu(gate) * up.
template <class T>
FP8_HD inline T swiglu_output(T gate, T up) {
  return dtype::from_float<T>(silu<T>(dtype::to_float(gate)) * dtype::to_float(up));
}

/// The gradients of gate and up, given that of the output.
template <class T>
FP8_HD inline void swiglu_gradients(T d_out, T gate, T up, T& d_gate, T& d_up) {
  const float g = dtype::to_float(gate), u = dtype::to_float(up), d = dtype::to_float(d_out);
  const float s = sigmoid<T>(g);
  d_gate = dtype::from_float<T>(d * u * s * __builtin_fmaf(g, 1.0f - s, 1.0f));
  d_up = dtype::from_float<T>(d * silu<T>(g));
}

}  // namespace fp8::ops
