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

/// Casts of n elements of type T, with factors for each element; `random` holds 8 bits for each, or is null: then they
/// are rounded to nearest.
template <class T>
struct Fp4Loops {
  /// Codes.
  void (*codes)(const T* x, const Fp4Factors& factors, const std::uint8_t* random, std::uint8_t* codes, std::int64_t n);
  /// Rounded elements times block scales, which are exact in BF16. `out` may be x.
  RowCounts (*values)(const T* x, const Fp4Factors& factors, const std::uint8_t* random, Bf16* out, std::int64_t n);
  /// The transform of one block of `rows` <= 16 rows, which are `stride` elements apart; out [16, cols]. Returns bits
  /// of its largest magnitude.
  Magnitude<Bf16> (*hadamard)(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t cols, Bf16* out);
};

/// Counters of Philox for blocks of 16 random bytes, byte i of a block from the lowest of its first word on.
struct Fp4Counters {
  std::uint64_t seed, stream;  ///< key, and high half of the counter
  std::uint64_t first, step;   ///< low half of the counter of block 0, and from one block to the next
};

/// Loops of one instruction set.
struct Fp4Kernels {
  void (*factors)(const float* amax, const Fp4Scales& scales, const Fp4Factors& out, std::int64_t n);  ///< of n blocks
  /// n blocks of random bytes, one after the other.
  void (*random_row)(const Fp4Counters& counters, std::int64_t n, std::uint8_t* out);
  /// n blocks of random bytes as columns of a matrix [16, n].
  void (*random_columns)(const Fp4Counters& counters, std::int64_t n, std::uint8_t* out);
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
