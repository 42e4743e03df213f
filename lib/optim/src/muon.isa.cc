// Momentum, steps and element-wise parts of the iteration of Muon over one chunk, vectorized.
#include "muon_kernels.h"
#include "update_loops.h"

namespace fp8::optim {
namespace {

using dtype::Bf16;
using FP8_ISA::at;
using FP8_ISA::finish;
using FP8_ISA::Noise;
using FP8_ISA::put;

// Updates elements [begin, end); `noise` has a word for each, unless M is float.
template <class M, class T>
void momentum_chunk(const float* gradient, M* momentum, T* direction, float gradient_scale,
                    [[maybe_unused]] const std::uint32_t* noise, std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    std::uint32_t random = 0;
    if constexpr (!std::is_same_v<M, float>) random = noise[i - begin];
    const Direction d = direction_of(dtype::to_float(momentum[i]), gradient[i] * gradient_scale);
    put(momentum[i], store_rounded<M>(d.momentum, random >> 16));
    put(direction[i], dtype::from_float<T>(d.direction));
  }
}

template <class M, class T>
void momentum(const MomentumUpdate& u, std::int64_t begin, std::int64_t end) {
  auto* const direction = static_cast<T*>(u.direction);
  if (u.gate.skip != 0) {
    for (std::int64_t i = begin; i < end; ++i) direction[i] = T{};
    return;
  }
  auto* const m = static_cast<M*>(u.momentum);
  if constexpr (std::is_same_v<M, float>) {
    momentum_chunk(u.gradient, m, direction, u.gate.gradient_scale, nullptr, begin, end);
  } else {
    Noise noise;
    momentum_chunk(u.gradient, m, direction, u.gate.gradient_scale, noise.fill(u.random, begin, end - begin), begin,
                   end);
  }
}

// Updates elements [begin, end), or only copies unchanged masters; `noise` has a word for each, unless P is float.
template <class P, class T, class C>
std::uint32_t step_chunk(P* master, const T* direction, C* compute_weight, const MuonUpdate& u,
                         [[maybe_unused]] const std::uint32_t* noise, std::int64_t begin, std::int64_t end) {
  const MuonCoefficients c = u.coefficients;
  std::uint32_t amax = 0;
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    std::uint32_t random = 0;
    if constexpr (!std::is_same_v<P, float>) random = noise[i - begin];
    const P stored =
        store_rounded<P>(muon_element(dtype::to_float(master[i]), dtype::to_float(direction[i]), c), random);
    put(master[i], stored);
    amax = std::max(amax, finish(stored, at(compute_weight, i)));
  }
  return amax;
}

template <class P, class T, class C>
std::uint32_t step(const MuonUpdate& u, std::int64_t begin, std::int64_t end) {
  auto* const master = static_cast<P*>(u.master);
  auto* const compute_weight = static_cast<C*>(u.compute_weight);
  const auto* const direction = static_cast<const T*>(u.direction);
  if (u.gate.skip != 0) return FP8_ISA::keep_chunk(master, compute_weight, begin, end);
  if constexpr (std::is_same_v<P, float>) {
    return step_chunk(master, direction, compute_weight, u, nullptr, begin, end);
  } else {
    Noise noise;
    return step_chunk(master, direction, compute_weight, u, noise.fill(u.random, begin, end - begin), begin, end);
  }
}

template <class T>
void divide(void* x, float divisor, std::int64_t begin, std::int64_t end) {
  auto* const values = static_cast<T*>(x);
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) put(values[i], dtype::from_float<T>(dtype::to_float(values[i]) / divisor));
}

template <class T>
void combine(const void* x, float a, const float* sums, float b, void* out, std::int64_t begin, std::int64_t end) {
  const auto* const values = static_cast<const T*>(x);
  auto* const to = static_cast<T*>(out);
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i)
    put(to[i], dtype::from_float<T>(combined(dtype::to_float(values[i]), a, sums[i], b)));
}

}  // namespace

constinit const MuonKernels FP8_ISA::kMuonKernels{
    .momentum = {{momentum<float, float>, momentum<float, Bf16>}, {momentum<Bf16, float>, momentum<Bf16, Bf16>}},
    .step = {{{step<float, float, float>, step<float, float, Bf16>, step<float, float, NoComputeWeight>},
              {step<float, Bf16, float>, step<float, Bf16, Bf16>, step<float, Bf16, NoComputeWeight>}},
             {{step<Bf16, float, float>, step<Bf16, float, Bf16>, step<Bf16, float, NoComputeWeight>},
              {step<Bf16, Bf16, float>, step<Bf16, Bf16, Bf16>, step<Bf16, Bf16, NoComputeWeight>}}},
    .divide = {divide<float>, divide<Bf16>},
    .combine = {combine<float>, combine<Bf16>},
};

}  // namespace fp8::optim
