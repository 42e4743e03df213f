/// Parts of the loops that update masters and moments: random words, and what is written with a master. Only for
/// *.isa.cc. Private to this crate.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "adamw_kernels.h"
#include "fp8/base/round.h"

namespace fp8::optim::FP8_ISA {

using dtype::Bf16;

// Random words of a chunk, one per element; see rounding_noise().
struct Noise {
  alignas(64) std::array<std::uint32_t, kChunk + 2 * kNoiseBlock> words;

  // Generates words for `count` elements from element `offset` of the block on; returns a pointer to the first
  // element's word.
  const std::uint32_t* fill(const RandomNumbers& random, std::int64_t offset, std::int64_t count) {
    const std::int64_t first = random.first_element + offset;
    const std::int64_t begin = first / kNoiseBlock, end = divide_up(first + count, kNoiseBlock);
    const std::uint64_t seed = random.seed;
    const std::int64_t number = random.number;
    const std::uint32_t tensor = random.tensor;
    for (std::int64_t block = begin; block < end; ++block) {
      std::uint32_t* out = words.data() + (block - begin) * kNoiseBlock;
#pragma GCC ivdep
      for (std::int64_t lane = 0; lane < kNoiseLanes; ++lane) {
        const auto w =
            rounding_noise(seed, number, tensor, static_cast<std::uint64_t>(block), static_cast<std::uint32_t>(lane));
        std::uint32_t* at = out + lane;
        at[0] = w[0];
        at[1 * kNoiseLanes] = w[1];
        at[2 * kNoiseLanes] = w[2];
        at[3 * kNoiseLanes] = w[3];
        at[4 * kNoiseLanes] = w[4];
        at[5 * kNoiseLanes] = w[5];
        at[6 * kNoiseLanes] = w[6];
        at[7 * kNoiseLanes] = w[7];
      }
    }
    return words.data() + first % kNoiseBlock;
  }
};

// out = value for scalars: the compiler does not vectorize the assignment of a struct.
inline void put(float& out, float value) { out = value; }
inline void put(Bf16& out, Bf16 value) { out.bits = value.bits; }

// Writes the compute weight of a stored master weight; returns its magnitude as bits, which order as the values do,
// with NaN above all.
template <class P, class C>
std::uint32_t finish(P stored, [[maybe_unused]] C* compute_weight) {
  const float value = dtype::to_float(stored);
  if constexpr (!std::is_same_v<C, NoComputeWeight>) put(*compute_weight, dtype::from_float<C>(value));
  return std::bit_cast<std::uint32_t>(value) & kMagnitude;
}

// The address of element i, or null if there is no compute weight.
template <class C>
C* at(C* compute_weight, [[maybe_unused]] std::int64_t i) {
  if constexpr (std::is_same_v<C, NoComputeWeight>) return nullptr;
  return compute_weight + i;
}

// Copies elements [begin, end) of an unchanged master; returns the largest magnitude as bits.
template <class P, class C>
std::uint32_t keep_chunk(const P* master, C* compute_weight, std::int64_t begin, std::int64_t end) {
  std::uint32_t amax = 0;
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) amax = std::max(amax, finish(master[i], at(compute_weight, i)));
  return amax;
}

}  // namespace fp8::optim::FP8_ISA
