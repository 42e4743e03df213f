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

/// Factors of blocks, or of elements.
struct Fp4Factors {
  float* multiplier;  ///< S divided by the block scale, which multiplies elements before they are rounded
  float* scale;       ///< the block scale, which multiplies rounded elements
};

/// Casts of n elements of type T; `random` holds 8 bits for each element, or is null: then they are rounded to nearest.
template <class T>
struct Fp4Loops {
  /// Codes, with one multiplier for each 16 elements; n is a multiple of 16.
  void (*blocks)(const T* x, const float* multiplier, const std::uint8_t* random, std::uint8_t* codes, std::int64_t n);
  /// Codes, with one multiplier for each element.
  void (*columns)(const T* x, const float* multiplier, const std::uint8_t* random, std::uint8_t* codes, std::int64_t n);
  /// Rounded elements times block scales, which are exact in BF16, with factors for each 16 elements; n is a multiple
  /// of 16. `out` may be x.
  RowCounts (*block_values)(const T* x, const Fp4Factors& factors, const std::uint8_t* random, Bf16* out,
                            std::int64_t n);
  /// The same with factors for each element.
  RowCounts (*column_values)(const T* x, const Fp4Factors& factors, const std::uint8_t* random, Bf16* out,
                             std::int64_t n);
  /// The transform of one block of `rows` <= 16 rows, which are `stride` elements apart; out [16, cols].
  void (*hadamard)(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t cols, Bf16* out);
};

/// Counters of Philox for blocks of 16 random bytes.
struct Fp4Counters {
  std::uint64_t seed, stream;  ///< key, and high half of the counter
  std::uint64_t first, step;   ///< low half of the counter of block 0, and from one block to the next
};

/// Loops of one instruction set.
struct Fp4Kernels {
  void (*factors)(const float* amax, const Fp4Scales& scales, const Fp4Factors& out, std::int64_t n);  ///< of n blocks
  /// n <= 16 blocks of random bytes: byte i of block b, from the lowest of the first word of Philox on, becomes
  /// out[b x across + i x along].
  void (*random)(const Fp4Counters& counters, std::int64_t n, std::int64_t across, std::int64_t along,
                 std::uint8_t* out);
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
