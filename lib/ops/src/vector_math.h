/// Elementary functions that a compiler vectorizes inside `#pragma omp simd` loops without -ffast-math: straight-line
/// code, selects instead of branches, no tables. Accurate to 2 ulp. Not a replacement of libm where one value is
/// wanted.
#pragma once

#include <bit>
#include <cstdint>

namespace fp8::ops {

/// e^x within 2 ulp (subnormal results to half a unit of their grid more); exp(-inf) = 0, exp(inf) = inf, NaN stays
/// NaN. x = n ln 2 + r with |r| <= ln(2) / 2; a polynomial of degree 6 for e^r (interpolated at Chebyshev nodes); 2^n
/// in two factors, so that subnormal results are right.
inline float exp_f32(float x) {
  const bool zero = x < -103.98f;               // below half the smallest subnormal
  const float clamped = x > 89.0f ? 89.0f : x;  // its exponential overflows
  const float v = zero ? 0.0f : clamped;
  const float shifted = __builtin_fmaf(v, 1.44269504f, 12582912.0f);  // 1.5 * 2^23: the integer lies in the low bits
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

/// 1 / (1 + e^-x) within 3 ulp.
inline float sigmoid(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

}  // namespace fp8::ops
