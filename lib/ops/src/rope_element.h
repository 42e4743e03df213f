/// The arithmetic of rotary positions on one pair, shared by the host's loops and the kernels.
#pragma once

#include <cmath>
#include <cstdint>

#include "fp8/dtype/element.h"

namespace fp8::ops {

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

}  // namespace fp8::ops
