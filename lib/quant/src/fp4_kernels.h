/// Loops of NVFP4 casts over adjacent elements, by fp4.isa.cc for the instruction set in use, on one thread. Results
/// are the same for every instruction set. Private to this crate.
#pragma once

#include "cast_row.h"
#include "fp8/quant/fp4.h"

namespace fp8::quant {

/// Scales of a tensor that follow from its amax.
struct Fp4Scales {
  float sixth;    ///< S / 6, which multiplies the amax of a block
  float inverse;  ///< 1 / S
};

/// Block scales of blocks, and what their elements are multiplied by.
struct Fp4Factors {
  std::uint8_t* codes;  ///< E4M3 codes of the block scales
  float* multiplier;    ///< S divided by the block scale
};

/// Casts of n elements of type T; `random` holds 8 bits for each element, or is null: then they are rounded to nearest.
template <class T>
struct Fp4Loops {
  /// One multiplier for each 16 elements; n is a multiple of 16.
  void (*blocks)(const T* x, const float* multiplier, const std::uint8_t* random, std::uint8_t* codes, std::int64_t n);
  /// One multiplier for each element.
  void (*columns)(const T* x, const float* multiplier, const std::uint8_t* random, std::uint8_t* codes, std::int64_t n);
  /// The transform of one block of `rows` <= 16 rows, which are `stride` elements apart; out [16, cols].
  void (*hadamard)(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t cols, Bf16* out);
};

/// Loops of one instruction set.
struct Fp4Kernels {
  void (*factors)(const float* amax, const Fp4Scales& scales, const Fp4Factors& out, std::int64_t n);  ///< of n blocks
  Fp4Loops<float> f32;  ///< loops over f32 elements
  Fp4Loops<Bf16> bf16;  ///< loops over BF16 elements
};
FP8_ISA_TABLES(Fp4Kernels, kFp4Kernels, fp4_kernels)

/// Loops over elements of type T.
template <class T>
const Fp4Loops<T>& fp4_loops() {
  if constexpr (std::is_same_v<T, float>)
    return fp4_kernels().f32;
  else
    return fp4_kernels().bf16;
}

}  // namespace fp8::quant
