/// The loops of adamw.isa.cc: one chunk of a block, on one thread. Private to this crate. Same bits for every
/// instruction set.
#pragma once

#include "adamw_element.h"
#include "fp8/base/cpu.h"

namespace fp8::optim {

/// Type of an absent compute weight.
struct NoComputeWeight {};

/// A block with element types: P master, M moments, C compute weight (null if there is none).
template <class P, class M, class C>
struct Arrays {
  P* master;              ///< updated
  const float* gradient;  ///< read
  M* m;                   ///< first moment, updated
  M* v;                   ///< second moment, updated
  C* compute_weight;      ///< written
};

inline constexpr std::int64_t kChunk = 4096;              ///< elements; the random words of one chunk fit the L1 cache
inline constexpr std::uint32_t kMagnitude = 0x7FFFFFFFu;  ///< bits of a magnitude, which order as the values do
inline constexpr std::size_t kNoComputeWeight = 2;  ///< index in AdamwKernels::update if there is no compute weight

/// Seed and counters of stochastic rounding.
struct RandomNumbers {
  std::uint64_t seed;          ///< seed of the run
  std::int64_t number;         ///< number of the update
  std::uint32_t tensor;        ///< see AdamwBlock
  std::int64_t first_element;  ///< see AdamwBlock
};

/// One update of a block.
struct Update {
  Arrays<void, void, void> arrays;  ///< arrays in the types of the kernel
  Coefficients coefficients;        ///< shared by all elements
  Gate gate;                        ///< skip flag and clipping factor
  RandomNumbers random;             ///< of stochastic rounding
};

/// Loops of one instruction set.
struct AdamwKernels {
  /// Updates elements [begin, end), at most kChunk, and returns the bits of the largest magnitude of the masters, with
  /// NaN above all. Indexed by the types of master, moments and compute weight: 0 f32, 1 bf16, kNoComputeWeight none.
  std::uint32_t (*update[2][2][3])(const Update& update, std::int64_t begin, std::int64_t end);
  double (*sum_of_squares)(const float* x, std::int64_t n);  ///< sum in 32 lanes, then lane by lane, then the remainder
};
FP8_ISA_TABLES(AdamwKernels, kAdamwKernels, adamw_kernels)

}  // namespace fp8::optim
