/// One element at a time: encode, decode, round. Shared by host loops and device kernels, so these functions are
/// inline, nearly branch-free and marked FP8_HD. Loops over arrays are in convert.h. Source: OCP 8-bit Floating Point
/// Specification (OFP8) 1.0; OCP MX 1.0 (E8M0).
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define FP8_HD __host__ __device__
#else
#define FP8_HD
#endif

namespace fp8::dtype {

/// A bfloat16 as stored: the upper half of a float. A distinct type, so that it cannot be confused with a uint16 token.
struct Bf16 {
  std::uint16_t bits;  ///< sign, 8 exponent bits, 7 fraction bits
};

/// The float with the same value.
FP8_HD inline float to_float(Bf16 v) { return std::bit_cast<float>(static_cast<std::uint32_t>(v.bits) << 16); }
/// Identity, for templates over float and Bf16.
FP8_HD inline float to_float(float v) { return v; }

/// Rounds to nearest even; NaN stays NaN (quiet, on a device without its sign and payload); overflow gives infinity, as
/// IEEE.
FP8_HD inline Bf16 to_bf16(float v);
/// to_bf16() of two floats: the bits of `low` in the low half of a word, those of `high` in the other. One instruction
/// on a device.
FP8_HD inline std::uint32_t to_bf16_pair(float low, float high);

#ifdef __CUDA_ARCH__
FP8_HD inline std::uint32_t to_bf16_pair(float low, float high) {
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
FP8_HD inline Bf16 to_bf16(float v) { return Bf16{static_cast<std::uint16_t>(to_bf16_pair(v, 0.0f))}; }
#else
FP8_HD inline Bf16 to_bf16(float v) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(v);
  const std::uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const bool nan = (u & 0x7FFFFFFFu) > 0x7F800000u;
  return Bf16{static_cast<std::uint16_t>(nan ? ((u >> 16) | 0x40u) : rounded)};
}
FP8_HD inline std::uint32_t to_bf16_pair(float low, float high) {
  return to_bf16(low).bits | static_cast<std::uint32_t>(to_bf16(high).bits) << 16;
}
#endif

/// Rounds stochastically to BF16: adds the 16 low bits of `random` below the kept fraction and truncates. BF16 values,
/// infinities and NaN are unchanged.
FP8_HD inline Bf16 to_bf16_stochastic(float v, std::uint32_t random) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(v);
  const bool finite = (u & 0x7F800000u) != 0x7F800000u;
  return finite ? Bf16{static_cast<std::uint16_t>((u + (random & 0xFFFFu)) >> 16)} : to_bf16(v);
}

/// Stores a float as T (float or Bf16), rounding to nearest even.
template <class T>
FP8_HD inline T from_float(float v);
template <>
FP8_HD inline float from_float<float>(float v) {
  return v;
}
template <>
FP8_HD inline Bf16 from_float<Bf16>(float v) {
  return to_bf16(v);
}

/// Value of an E4M3FN code; 0x7F and 0xFF are NaN.
FP8_HD inline float from_e4m3(std::uint8_t code);
/// Value of an E5M2 code; infinities and NaN as IEEE.
FP8_HD inline float from_e5m2(std::uint8_t code);
/// Value of an E8M0 code: 2^(code - 127), subnormal 2^-127 at code 0; 0xFF is NaN.
FP8_HD inline float from_e8m0(std::uint8_t code);
/// E8M0 code of the smallest power of two >= v (v >= 0), 2^-127 to 2^127: 0 gives 0x00, infinity 0xFE, NaN 0xFF.
FP8_HD inline std::uint8_t to_e8m0_round_up(float v);

}  // namespace fp8::dtype

#include "fp8/dtype/element_impl.h"
