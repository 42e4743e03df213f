/// The loop of attention_cached over the keys of one query. Private to this crate.
#pragma once

#include <cstdint>
#include <type_traits>

#include "fp8/base/cpu.h"
#include "fp8/dtype/element.h"

namespace fp8::ops {

/// One query and the keys and values that it attends to. Rows have `dim` elements with unit stride.
template <class T>
struct CachedQuery {
  const T* q;                             ///< the query
  const T *k, *v;                         ///< first key and value
  std::int64_t key_stride, value_stride;  ///< elements between positions
  std::int64_t keys, dim;                 ///< number of keys, at least 1; elements of a row
  float scale;                            ///< factor of the scores
  T* out;                                 ///< result
  float* scratch;                         ///< keys + 2 dim floats
};

/// Loops of attention_cached.isa.cc for one instruction set.
struct CachedKernels {
  void (*f32)(const CachedQuery<float>& query);         ///< f32 activations
  void (*bf16)(const CachedQuery<dtype::Bf16>& query);  ///< bf16 activations
};
FP8_ISA_TABLES(CachedKernels, kCachedKernels, cached_kernels)

/// The loop for T.
template <class T>
auto cached_kernel() {
  if constexpr (std::is_same_v<T, float>)
    return cached_kernels().f32;
  else
    return cached_kernels().bf16;
}

}  // namespace fp8::ops
