/// Elementary functions and sums for vectorized loops, also used in kernels. The functions are accurate to 2 ulp and
/// are vectorized in `#pragma omp simd` loops without -ffast-math: straight-line code, selects instead of branches, no
/// tables. Private to this crate.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fp8/dtype/element.h"

namespace fp8::ops {

/// e^x within 2 ulp (subnormal results: half a unit of their spacing more); exp(-inf) = 0, exp(inf) = inf, NaN stays
/// NaN. x = n ln 2 + r with |r| <= ln(2) / 2; a polynomial of degree 6 for e^r (interpolated at Chebyshev nodes); 2^n
/// as two factors, for subnormal results.
FP8_HD inline float exp_f32(float x) {
  const bool zero = x < -103.98f;               // below half the smallest subnormal
  const float clamped = x > 89.0f ? 89.0f : x;  // its exponential overflows
  const float v = zero ? 0.0f : clamped;
  const float shifted = __builtin_fmaf(v, 1.44269504f, 12582912.0f);  // 1.5 * 2^23: the integer is in the low bits
  const float n = shifted - 12582912.0f;
  // ln 2 = 0.693359375 - 2.12194440e-4; the first product is exact
  const float r = __builtin_fmaf(n, 2.12194440e-4f, v - n * 0.693359375f);
  float tail = __builtin_fmaf(0.00139263261f, r, 0.00836329255f);
  tail = __builtin_fmaf(tail, r, 0.0416665524f);
  tail = __builtin_fmaf(tail, r, 0.166665763f);
  tail = __builtin_fmaf(tail, r, 0.5f);
  const float p = 1.0f + __builtin_fmaf(r * r, tail, r);
  const std::int32_t i = std::bit_cast<std::int32_t>(shifted) - 0x4B400000;
  const std::int32_t half = i >> 1;
  const float scale0 = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
  const float scale1 = std::bit_cast<float>(static_cast<std::uint32_t>(i - half + 127) << 23);
  return zero ? 0.0f : p * scale0 * scale1;
}

/// e^x correctly rounded except for a few arguments in a million: the same reduction in double, a Taylor polynomial of
/// degree 9 (error below 2^-33). For f32 activations, of which the last bit may change an FP8 code.
FP8_HD inline float exp_rounded(float x) {
  const bool zero = x < -103.98f;
  const double v = zero ? 0.0 : x > 89.0f ? 89.0 : static_cast<double>(x);
  const double shifted = v * 1.4426950408889634 + 6755399441055744.0;  // 1.5 * 2^52: the integer is in the low bits
  const double n = shifted - 6755399441055744.0;
  const double r = __builtin_fma(n, -0.6931471805599453, v);
  double p = 1.0 / 362880.0;
  p = __builtin_fma(p, r, 1.0 / 40320.0);
  p = __builtin_fma(p, r, 1.0 / 5040.0);
  p = __builtin_fma(p, r, 1.0 / 720.0);
  p = __builtin_fma(p, r, 1.0 / 120.0);
  p = __builtin_fma(p, r, 1.0 / 24.0);
  p = __builtin_fma(p, r, 1.0 / 6.0);
  p = __builtin_fma(p, r, 0.5);
  p = __builtin_fma(p, r, 1.0);
  p = __builtin_fma(p, r, 1.0);
  const std::int64_t exponent = std::bit_cast<std::int64_t>(shifted) - 0x4338000000000000;
  const double scale = std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  return zero ? 0.0f : static_cast<float>(p * scale);
}

/// e^x for activations of type T: correctly rounded for float, within 2 ulp for BF16.
template <class T>
FP8_HD inline float exp_for(float x) {
  if constexpr (std::is_same_v<T, float>) return exp_rounded(x);
  return exp_f32(x);
}

/// 1 / (1 + e^-x) within 3 ulp.
template <class T>
FP8_HD inline float sigmoid(float x) {
  return 1.0f / (1.0f + exp_for<T>(-x));
}

/// x / (1 + e^-x) within 3 ulp, in this order of operations, as PyTorch's silu.
template <class T>
FP8_HD inline float silu(float x) {
  return x / (1.0f + exp_for<T>(-x));
}

/// The largest of f(0) ... f(n - 1), n > 0; one that is NaN counts only if it is the first. f has no side effects.
template <class F>
inline float lane_max(std::int64_t n, F f) {
  float m = f(0);
#pragma omp simd reduction(max : m)
  for (std::int64_t i = 0; i < n; ++i) {
    const float v = f(i);
    m = v > m ? v : m;
  }
  return m;
}

/// f(0) + ... + f(n - 1) in f32, in an order that does not depend on the width of vectors: f(i) is added to lane i %
/// 32, then the upper half of the lanes to the lower, five times. f has no side effects.
template <class F>
inline float lane_sum(std::int64_t n, F f) {
  constexpr std::int64_t kLanes = 32;
  std::array<float, kLanes> lane{};
  const std::int64_t whole = n / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
    for (std::int64_t l = 0; l < kLanes; ++l) lane[static_cast<std::size_t>(l)] += f(i + l);
  }
  for (std::int64_t i = whole; i < n; ++i) lane[static_cast<std::size_t>(i - whole)] += f(i);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2)
    for (std::size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

}  // namespace fp8::ops
