// AdamW over one chunk, and sums of squares, vectorized.
#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "adamw_kernels.h"
#include "update_loops.h"

namespace fp8::optim {
namespace {

using dtype::Bf16;
using FP8_ISA::at;
using FP8_ISA::finish;
using FP8_ISA::Noise;
using FP8_ISA::put;

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

template <class P, class M, class C>
std::uint32_t update(const Update& u, std::int64_t begin, std::int64_t end) {
  const Arrays<P, M, C> a{static_cast<P*>(u.arrays.master), u.arrays.gradient, static_cast<M*>(u.arrays.m),
                          static_cast<M*>(u.arrays.v), static_cast<C*>(u.arrays.compute_weight)};
  if (u.gate.skip != 0) return FP8_ISA::keep_chunk(a.master, a.compute_weight, begin, end);
  if constexpr (std::is_same_v<P, float> && std::is_same_v<M, float>) {
    return update_chunk(a, begin, end, u.coefficients, u.gate.gradient_scale, nullptr);
  } else {
    Noise noise;
    return update_chunk(a, begin, end, u.coefficients, u.gate.gradient_scale, noise.fill(u.random, begin, end - begin));
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
