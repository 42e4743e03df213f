/// The largest magnitude that an operation writes, recorded while the elements are in registers: a cast of the result
/// by one scale then needs no pass of its own to find it.
#pragma once

#include "fp8/tensor/tensor.h"

namespace fp8::ops {

/// Memory for the largest magnitude of an operation's result.
struct Amax {
  tensor::View value{};   ///< f32 on the context's device, becomes max(itself, amax); empty: not wanted
  bool skip_nan = false;  ///< NaNs are left out; otherwise the amax of elements with a NaN is NaN
};

}  // namespace fp8::ops
