/// FP8 codes of two floats, for kernels: by the conversion instruction of devices of compute capability 8.9 and later,
/// by encode() of element.h on older ones. Host loops call encode().
#pragma once

#include <cstdint>
#include <type_traits>

#include "fp8/dtype/element.h"

#if !defined(__CUDACC__) && !defined(FP8_CUDA_SHIM)
#error "for kernels: compiled by nvcc, or for the host after tests/support/cuda_shim.h"
#endif

namespace fp8::dtype {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
/// cvt.rn.satfinite.e4m3x2.f32: the code of `high` in the upper byte, that of `low` in the lower.
__device__ inline std::uint16_t cvt_e4m3x2(float high, float low) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}
/// cvt.rn.satfinite.e5m2x2.f32, likewise.
__device__ inline std::uint16_t cvt_e5m2x2(float high, float low) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}
#elif defined(FP8_CUDA_SHIM)
using shim::cvt_e4m3x2;
using shim::cvt_e5m2x2;
#endif

/// encode<Grid>(low) in the lower byte and encode<Grid>(high) in the upper one; the sign of NaN is not specified. The
/// instruction has the rules of encode(): to nearest even, ties, subnormals and the sign of zero included; magnitudes
/// above the largest value, and infinity, become that value; NaN becomes 0x7F. Source: PTX ISA 9.0, cvt.
template <class Grid>
__device__ inline std::uint32_t encode_pair(float low, float high) {
#if defined(FP8_CUDA_SHIM) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890)
  if constexpr (std::is_same_v<Grid, E4m3Grid>)
    return cvt_e4m3x2(high, low);
  else
    return cvt_e5m2x2(high, low);
#else
  return code_bits<Grid>(low) | code_bits<Grid>(high) << 8;
#endif
}

}  // namespace fp8::dtype
