/// The loops of convert.isa.cc over n >= 0 elements. Private to this crate.
#pragma once

#include <cstddef>

#include "fp8/base/cpu.h"
#include "fp8/dtype/element.h"

namespace fp8::dtype {

/// Loops of one instruction set; a void `in` may have any alignment, as in a mapped file.
struct ConvertKernels {
  /// Elements at any alignment to elements of type Out.
  template <class Out>
  using Loop = void (*)(const void* in, Out* out, std::size_t n);
  void (*f32_to_bf16)(const float* in, Bf16* out, std::size_t n);  ///< rounded to nearest even
  Loop<Bf16> e4m3_to_bf16;                                         ///< exact
  Loop<Bf16> e5m2_to_bf16;                                         ///< exact
  Loop<float> bf16_to_f32;                                         ///< exact
  Loop<float> f64_to_f32;                                          ///< rounded to nearest even
  Loop<float> f16_to_f32;                                          ///< exact
  Loop<float> e4m3_to_f32;                                         ///< exact
  Loop<float> e5m2_to_f32;                                         ///< exact
  Loop<float> e2m1_to_f32;                                         ///< exact; n is even, two codes in a byte
  Loop<float> e8m0_to_f32;                                         ///< exact
};
FP8_ISA_TABLES(ConvertKernels, kConvertKernels, convert_kernels)

}  // namespace fp8::dtype
