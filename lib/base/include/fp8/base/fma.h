/// Fused multiply-add of vectors (GCC's vector extension), for loops of *.isa.cc. Not left to the contraction of
/// products and sums by the compiler, which depends on its flags.
#pragma once

#if defined(__FMA__)
#include <immintrin.h>
#endif

namespace fp8 {

/// a b + c in each lane, rounded once.
///   V  a vector of floats
template <class V>
inline V fused_multiply_add(const V& a, const V& b, const V& c) {
  V sum;
  for (unsigned i = 0; i < sizeof(V) / sizeof(float); ++i) sum[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return sum;
}

#if defined(__FMA__)
using Floats8 [[gnu::vector_size(32)]] = float;  ///< a vector of AVX
/// One instruction.
inline Floats8 fused_multiply_add(const Floats8& a, const Floats8& b, const Floats8& c) {
  return (Floats8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
#endif

#if defined(__AVX512F__)
using Floats16 [[gnu::vector_size(64)]] = float;  ///< a vector of AVX-512
/// One instruction.
inline Floats16 fused_multiply_add(const Floats16& a, const Floats16& b, const Floats16& c) {
  return (Floats16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
#endif

}  // namespace fp8
