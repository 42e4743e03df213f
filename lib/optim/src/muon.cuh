// Muon on a device: momentum, step, and the element-wise parts of the iteration. Each thread computes adjacent
// elements.
#pragma once

#include "adamw.cuh"
#include "cuda.h"
#include "muon_kernels.h"

namespace fp8::optim {

// The random word of element i of a block, as rounding_noise() has it.
__device__ inline std::uint32_t random_word(const RandomNumbers& random, std::int64_t i) {
  const std::int64_t at = random.first_element + i;
  Noise noise{noise_bits(random.seed, random.number, random.tensor, static_cast<std::uint64_t>(at / kNoiseBlock),
                         static_cast<std::uint32_t>(at % kNoiseLanes))};
  std::uint32_t word = noise.next();
  for (std::int64_t s = at % kNoiseBlock / kNoiseLanes; s > 0; --s) word = noise.next();
  return word;
}

// Calls body.run<W>(i) for each element: kAdjacent at once if `packed`, or one.
template <class Body>
__device__ inline void run_adjacent(const Body& body, bool packed, std::int64_t n) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kUpdateThreads + threadIdx.x) * kAdjacent;
  if (packed && i + kAdjacent <= n) {
    body.template run<kAdjacent>(i);
  } else {
    for (std::int64_t j = i; j < i + kAdjacent && j < n; ++j) body.template run<1>(j);
  }
}

// x /= the norm of which *square_sum is the square.
template <class T>
struct Divide {
  T* x;
  const double* square_sum;
  template <int W>
  __device__ void run(std::int64_t i) const {
    const float divisor = divisor_of(*square_sum);
    device::Group<float, W> v = device::load_floats<W>(x + i);
    FP8_UNROLL
    for (int j = 0; j < W; ++j) v.at[j] /= divisor;
    device::store_floats<W>(x + i, v);
  }
};

// out = a x + b sums.
template <class T>
struct Combine {
  const T* x;
  const float* sums;
  T* out;
  float a, b;
  template <int W>
  __device__ void run(std::int64_t i) const {
    device::Group<float, W> v = device::load_floats<W>(x + i);
    const device::Group<float, W> sum = device::load_floats<W>(sums + i);
    FP8_UNROLL
    for (int j = 0; j < W; ++j) v.at[j] = combined(v.at[j], a, sum.at[j], b);
    device::store_floats<W>(out + i, v);
  }
};

template <class M, class T>
struct Momentum {
  const float* gradient;
  M* momentum;
  T* direction;
  const Gate* gate;
  RandomNumbers random;
  template <int W>
  __device__ void run(std::int64_t i) const {
    device::Group<float, W> out{};
    if (gate->skip == 0) {
      const device::Group<float, W> g = device::load_floats<W>(gradient + i);
      device::Group<float, W> m = device::load_floats<W>(momentum + i);
      FP8_UNROLL
      for (int j = 0; j < W; ++j) {
        const Direction d = direction_of(m.at[j], g.at[j] * gate->gradient_scale);
        const std::uint32_t word = sizeof(M) == sizeof(float) ? 0 : random_word(random, i + j);
        m.at[j] = dtype::to_float(store_rounded<M>(d.momentum, word >> 16));
        out.at[j] = d.direction;
      }
      device::store_floats<W>(momentum + i, m);
    }
    device::store_floats<W>(direction + i, out);
  }
};

template <class P, class T, class C>
struct Step {
  P* master;
  const T* direction;
  C* compute_weight;
  MuonCoefficients coefficients;
  const Gate* gate;
  RandomNumbers random;
  device::Largest* largest;
  template <int W>
  __device__ void run(std::int64_t i) const {
    device::Group<float, W> p = device::load_floats<W>(master + i);
    if (gate->skip == 0) {
      const device::Group<float, W> d = device::load_floats<W>(direction + i);
      FP8_UNROLL
      for (int j = 0; j < W; ++j) {
        const std::uint32_t word = sizeof(P) == sizeof(float) ? 0 : random_word(random, i + j);
        p.at[j] = dtype::to_float(store_rounded<P>(muon_element(p.at[j], d.at[j], coefficients), word));
      }
      device::store_floats<W>(master + i, p);
    }
    if constexpr (sizeof(C) > 1) device::store_floats<W>(compute_weight + i, p);
    largest->add(p);
  }
};

template <class Body>
__global__ void __launch_bounds__(kUpdateThreads) adjacent_kernel(Body body, bool packed, std::int64_t n) {
  run_adjacent(body, packed, n);
}

template <class P, class T, class C>
__global__ void __launch_bounds__(kUpdateThreads)
    muon_kernel(Step<P, T, C> step, bool packed, std::int64_t n, unsigned* amax) {
  device::Largest largest(false);
  step.largest = &largest;
  run_adjacent(step, packed, n);
  if (amax != nullptr) largest.record<kUpdateThreads>(amax);
}

inline dim3 adjacent_grid(std::int64_t n) {
  return dim3(device::blocks_for(divide_up(n, std::int64_t{kAdjacent}), kUpdateThreads));
}

template <class Launcher>
void divide_cuda(const Launcher& launch, const View& x, const double* square_sum) {
  dtype::with_float_type(x.dtype, "Muon", [&]<class T>() {
    launch("muon: divide", adjacent_grid(x.size()), dim3(kUpdateThreads), adjacent_kernel<Divide<T>>,
           Divide<T>{x.as<T>(), square_sum}, adjacent_pack(x.as<T>()), x.size());
  });
}

template <class Launcher>
void combine_cuda(const Launcher& launch, const Combination& c) {
  dtype::with_float_type(c.x.dtype, "Muon", [&]<class T>() {
    const Combine<T> body{c.x.as<T>(), c.sums.as<float>(), c.out.as<T>(), c.a, c.b};
    launch("muon: combine", adjacent_grid(c.x.size()), dim3(kUpdateThreads), adjacent_kernel<Combine<T>>, body,
           adjacent_pack(body.x) && adjacent_pack(body.sums) && adjacent_pack(body.out), c.x.size());
  });
}

inline RandomNumbers random_numbers(const Scalars& scalars, std::uint32_t tensor, std::int64_t first_element) {
  return {scalars.seed, scalars.update, tensor, first_element};
}

template <class Launcher>
void momentum_cuda(const Launcher& launch, const MomentumBlock& block, const Scalars& scalars) {
  const std::int64_t n = block.gradient.size();
  dtype::with_float_type(block.momentum.dtype, "Muon", [&]<class M>() {
    dtype::with_float_type(block.direction.dtype, "Muon", [&]<class T>() {
      const Momentum<M, T> body{block.gradient.as<float>(), block.momentum.as<M>(), block.direction.as<T>(),
                                scalars.gate, random_numbers(scalars, block.tensor, block.first_element)};
      launch("muon: momentum", adjacent_grid(n), dim3(kUpdateThreads), adjacent_kernel<Momentum<M, T>>, body,
             adjacent_pack(body.gradient) && adjacent_pack(body.momentum) && adjacent_pack(body.direction), n);
    });
  });
}

// `block` was checked; its compute weight is empty if it is the master itself.
template <class Launcher>
void muon_cuda(const Launcher& launch, const MuonBlock& block, const Settings& settings, const Scalars& scalars) {
  const std::int64_t n = block.master.size();
  auto* const amax = static_cast<unsigned*>(block.amax.data);
  if (amax != nullptr)
    device::clear_signs(launch, block.amax.as<float>(), 1);  // the previous value takes part in the maximum
  dtype::with_float_type(block.master.dtype, "Muon", [&]<class P>() {
    dtype::with_float_type(block.direction.dtype, "Muon", [&]<class T>() {
      const auto run = [&]<class C>(C* compute_weight) {
        const Step<P, T, C> step{block.master.as<P>(),
                                 block.direction.as<T>(),
                                 compute_weight,
                                 muon_coefficients(settings, scalars, block),
                                 scalars.gate,
                                 random_numbers(scalars, block.tensor, block.first_element),
                                 nullptr};
        const bool packed =
            adjacent_pack(step.master) && adjacent_pack(step.direction) && adjacent_pack(compute_weight);
        launch("muon", adjacent_grid(n), dim3(kUpdateThreads), muon_kernel<P, T, C>, step, packed, n, amax);
      };
      if (block.compute_weight.empty()) return run(static_cast<NoComputeWeight*>(nullptr));
      dtype::with_float_type(block.compute_weight.dtype, "Muon", [&]<class C>() { run(block.compute_weight.as<C>()); });
    });
  });
}

}  // namespace fp8::optim
