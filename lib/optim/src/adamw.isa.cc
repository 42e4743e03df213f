// AdamW over one chunk, and sums of squares, vectorized.
#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "adamw_kernels.h"
#include "fp8/base/round.h"

namespace fp8::optim {
namespace {

using dtype::Bf16;

// Random words of a chunk, one per element; see rounding_noise().
struct Noise {
  alignas(64) std::array<std::uint32_t, kChunk + 2 * kNoiseBlock> words;

  // Generates words for `count` elements from element `offset` of the block on; returns a pointer to the first
  // element's word.
  const std::uint32_t* fill(const Update& u, std::int64_t offset, std::int64_t count) {
    const std::int64_t first = u.first_element + offset;
    const std::int64_t begin = first / kNoiseBlock, end = divide_up(first + count, kNoiseBlock);
    const std::uint64_t seed = u.seed;
    const std::int64_t number = u.number;
    const std::uint32_t tensor = u.tensor;
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
void put(float& out, float value) { out = value; }
void put(Bf16& out, Bf16 value) { out.bits = value.bits; }

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

// Updates elements [begin, end); returns the largest magnitude as bits.
template <class P, class M, class C>
std::uint32_t update_chunk(const Arrays<P, M, C>& arrays, std::int64_t begin, std::int64_t end,
                           const Coefficients& coefficients, float gradient_scale,
                           [[maybe_unused]] const std::uint32_t* noise) {
  const Arrays<P, M, C> a = arrays;     // local copies, so that the compiler sees
  const Coefficients c = coefficients;  // a local copy, which no store can change
  std::uint32_t amax = 0;
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    std::uint32_t random = 0, random_v = 0;
    if constexpr (!std::is_same_v<P, float> || !std::is_same_v<M, float>) {
      random = noise[i - begin];
      random_v = noise_of_v(random);
    }
    const Element before{dtype::to_float(a.master[i]), dtype::to_float(a.m[i]), dtype::to_float(a.v[i])};
    const Element e = adamw_element(before, a.gradient[i] * gradient_scale, c);
    const P stored = store_rounded<P>(e.p, random);
    put(a.master[i], stored);
    put(a.m[i], store_rounded<M>(e.m, random >> 16));
    put(a.v[i], store_rounded<M>(e.v, random_v));
    amax = std::max(amax, finish(stored, at(a.compute_weight, i)));
  }
  return amax;
}

// Copies elements [begin, end) of an unchanged master; returns the largest magnitude as bits.
template <class P, class C>
std::uint32_t keep_chunk(const P* master, C* compute_weight, std::int64_t begin, std::int64_t end) {
  std::uint32_t amax = 0;
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) amax = std::max(amax, finish(master[i], at(compute_weight, i)));
  return amax;
}

template <class P, class M, class C>
std::uint32_t update(const Update& u, std::int64_t begin, std::int64_t end) {
  const Arrays<P, M, C> a{static_cast<P*>(u.arrays.master), u.arrays.gradient, static_cast<M*>(u.arrays.m),
                          static_cast<M*>(u.arrays.v), static_cast<C*>(u.arrays.compute_weight)};
  if (u.gate.skip != 0) return keep_chunk(a.master, a.compute_weight, begin, end);
  if constexpr (std::is_same_v<P, float> && std::is_same_v<M, float>) {
    return update_chunk(a, begin, end, u.coefficients, u.gate.gradient_scale, nullptr);
  } else {
    Noise noise;
    return update_chunk(a, begin, end, u.coefficients, u.gate.gradient_scale, noise.fill(u, begin, end - begin));
  }
}

constexpr std::int64_t kLanes = 32;  // independent partial sums

double sum_block(const float* x, std::int64_t n) {
  std::array<double, kLanes> lane{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (std::int64_t l = 0; l < kLanes; ++l) {
      const double value = static_cast<double>(x[i + l]);
      lane[static_cast<std::size_t>(l)] += value * value;  // the product is exact, so an fma changes nothing
    }
  }
  double sum = 0;
  for (const double part : lane) sum += part;
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace

constinit const AdamwKernels FP8_ISA::kAdamwKernels{
    .update = {{{update<float, float, float>, update<float, float, Bf16>, update<float, float, NoComputeWeight>},
                {update<float, Bf16, float>, update<float, Bf16, Bf16>, update<float, Bf16, NoComputeWeight>}},
               {{update<Bf16, float, float>, update<Bf16, float, Bf16>, update<Bf16, float, NoComputeWeight>},
                {update<Bf16, Bf16, float>, update<Bf16, Bf16, Bf16>, update<Bf16, Bf16, NoComputeWeight>}}},
    .sum_of_squares = sum_block,
};

}  // namespace fp8::optim
