// AdamW, and the gradient's norm and gate, on a device. Each thread updates the elements that share one random counter,
// so that every element is rounded as on the host, and of four adjacent counters, so that they are loaded together.
#pragma once

#include <algorithm>

#include "adamw_kernels.h"
#include "fp8/base/round.h"
#include "fp8/device/groups.h"
#include "fp8/device/magnitudes.h"
#include "fp8/dtype/dispatch.h"
#include "update_sizes.h"

namespace fp8::optim {

// Arguments of an update besides its arrays.
struct UpdateOf {
  Coefficients coefficients;
  std::int64_t first;  // global index of element 0
  std::int64_t size;
  std::uint64_t seed;
  std::int64_t update;
  std::uint32_t tensor;
  const Gate* gate;
  bool packed;  // kAdjacent elements of every array can be loaded at once
};

// The words of rounding_noise() one after the other, without an array that is indexed.
struct Noise {
  std::array<std::uint32_t, 4> bits{};
  __device__ std::uint32_t next() {
    const std::uint32_t word = noise_word(bits[0] & 0xFFFFu, bits[0] >> 16, bits[1] >> 16);
    bits = {bits[0] >> 16 | bits[1] << 16, bits[1] >> 16 | bits[2] << 16, bits[2] >> 16 | bits[3] << 16,
            bits[3] >> 16 | bits[0] << 16};
    return word;
  }
};

// Updates W elements from i on, rounding with these random words.
template <int W, class P, class M, class C>
__device__ inline void update_elements(const Arrays<P, M, C>& a, const UpdateOf& u, const Gate& gate, std::int64_t i,
                                       const std::uint32_t* random, device::Largest& largest) {
  device::Group<float, W> p = device::load_floats<W>(a.master + i);
  if (gate.skip == 0) {
    device::Group<float, W> m = device::load_floats<W>(a.m + i), v = device::load_floats<W>(a.v + i);
    const device::Group<float, W> g = device::load_floats<W>(a.gradient + i);
    FP8_UNROLL
    for (int j = 0; j < W; ++j) {
      const Element e = adamw_element({p.at[j], m.at[j], v.at[j]}, g.at[j] * gate.gradient_scale, u.coefficients);
      p.at[j] = dtype::to_float(store_rounded<P>(e.p, random[j]));
      m.at[j] = dtype::to_float(store_rounded<M>(e.m, random[j] >> 16));
      v.at[j] = dtype::to_float(store_rounded<M>(e.v, noise_of_v(random[j])));
    }
    device::store_floats<W>(a.master + i, p);
    device::store_floats<W>(a.m + i, m);
    device::store_floats<W>(a.v + i, v);
  }
  if constexpr (sizeof(C) > 1) device::store_floats<W>(a.compute_weight + i, p);
  largest.add(p);
}

template <class P, class M, class C>
__global__ void __launch_bounds__(kUpdateThreads) adamw_kernel(Arrays<P, M, C> a, UpdateOf u, unsigned* amax) {
  constexpr bool kRounds = sizeof(P) != sizeof(float) || sizeof(M) != sizeof(float);
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kUpdateThreads + threadIdx.x;
  const std::int64_t block = u.first / kNoiseBlock + thread / kUpdateLanes, lane = thread % kUpdateLanes * kAdjacent;
  Noise noise[kAdjacent];
  FP8_UNROLL
  for (int j = 0; kRounds && j < kAdjacent; ++j)
    noise[j].bits =
        noise_bits(u.seed, u.update, u.tensor, static_cast<std::uint64_t>(block), static_cast<std::uint32_t>(lane + j));
  const Gate gate = *u.gate;
  device::Largest largest(false);
  for (int s = 0; s < kNoiseBlock / kNoiseLanes; ++s) {
    const std::int64_t i = block * kNoiseBlock + s * kNoiseLanes + lane - u.first;
    std::uint32_t random[kAdjacent] = {};
    FP8_UNROLL
    for (int j = 0; kRounds && j < kAdjacent; ++j) random[j] = noise[j].next();
    if (u.packed && i >= 0 && i + kAdjacent <= u.size) {
      update_elements<kAdjacent>(a, u, gate, i, random, largest);
    } else {
      FP8_UNROLL
      for (int j = 0; j < kAdjacent; ++j)
        if (i + j >= 0 && i + j < u.size) update_elements<1>(a, u, gate, i + j, random + j, largest);
    }
  }
  if (amax != nullptr) largest.record<kUpdateThreads>(amax);
}

// Whether kAdjacent elements from p on are aligned as load_bits() needs it.
template <class T>
bool adjacent_pack(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % (kAdjacent * sizeof(T)) == 0;
}

// `block` was checked; its compute weight is empty if it is the master itself.
template <class Launcher>
void adamw_cuda(const Launcher& launch, const AdamwBlock& block, const Settings& settings, const Scalars& scalars) {
  const std::int64_t n = block.master.size();
  UpdateOf u{coefficients_of(settings, scalars, block.decay),
             block.first_element,
             n,
             scalars.seed,
             scalars.update,
             block.tensor,
             scalars.gate,
             false};
  auto* const amax = static_cast<unsigned*>(block.amax.data);
  if (amax != nullptr)
    device::clear_signs(launch, block.amax.as<float>(), 1);  // the previous value takes part in the maximum
  const std::int64_t noise_blocks = divide_up(block.first_element + n, kNoiseBlock) - block.first_element / kNoiseBlock;
  const std::int64_t threads = noise_blocks * kUpdateLanes;
  const dim3 grid(device::blocks_for(threads, kUpdateThreads));
  dtype::with_float_type(block.master.dtype, "AdamW", [&]<class P>() {
    dtype::with_float_type(block.m.dtype, "AdamW", [&]<class M>() {
      const auto run = [&]<class C>(C* compute_weight) {
        const Arrays<P, M, C> arrays{block.master.as<P>(), block.gradient.as<float>(), block.m.as<M>(), block.v.as<M>(),
                                     compute_weight};
        u.packed = u.first % kAdjacent == 0 && adjacent_pack(arrays.master) && adjacent_pack(arrays.gradient) &&
                   adjacent_pack(arrays.m) && adjacent_pack(arrays.v) && adjacent_pack(compute_weight);
        launch("adamw", grid, dim3(kUpdateThreads), adamw_kernel<P, M, C>, arrays, u, amax);
      };
      if (block.compute_weight.empty()) return run(static_cast<NoComputeWeight*>(nullptr));
      dtype::with_float_type(block.compute_weight.dtype, "AdamW",
                             [&]<class C>() { run(block.compute_weight.as<C>()); });
    });
  });
}

inline constexpr int kSumThreads = 256;

// The summand: the square of an element, or the element itself.
struct Square {
  __device__ double operator()(float v) const { return static_cast<double>(v) * static_cast<double>(v); }
};
struct Itself {
  __device__ double operator()(float v) const { return static_cast<double>(v); }
};

// partial[b] = sum of Of over the elements of x's piece b.
template <class Of, class T>
__global__ void sum_kernel(const T* x, std::int64_t n, double* partial) {
  using Pack = device::Pack<T>;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kSumPiece;
  const std::int64_t end = begin + kSumPiece < n ? begin + kSumPiece : n;
  const bool packed = device::packs(x, 0);
  double sum = 0;
  for (std::int64_t i = begin + static_cast<int>(threadIdx.x) * Pack::kSize; i < end; i += kSumThreads * Pack::kSize) {
    if (packed && i + Pack::kSize <= end) {
      const Pack pack = *reinterpret_cast<const Pack*>(x + i);
      for (int k = 0; k < Pack::kSize; ++k) sum += Of{}(pack.at[k]);
    } else {
      for (std::int64_t j = i; j < end && j < i + Pack::kSize; ++j) sum += Of{}(x[j]);
    }
  }
  sum = device::block_combine<kSumThreads>(sum, device::Add{});
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// total += sum of partial, in order of threads and then of the block.
template <class T>
__global__ void total_kernel(const T* partial, std::int64_t n, T* total) {
  T sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kSumThreads) sum += partial[i];
  sum = device::block_combine<kSumThreads>(sum, device::Add{});
  if (threadIdx.x == 0) *total += sum;
}

// total += sum of Of over x; `partial` has pieces_to_sum(n) elements.
template <class Of, class Launcher>
void add_sums_cuda(const Launcher& launch, const float* x, std::int64_t n, double* partial, double* total) {
  const std::int64_t pieces = pieces_to_sum(n);
  launch("sums", dim3(static_cast<unsigned>(pieces)), dim3(kSumThreads), sum_kernel<Of, float>, x, n, partial);
  launch("sums: total", dim3(1), dim3(kSumThreads), total_kernel<double>, partial, pieces, total);
}

template <class T>
__global__ void in_order_kernel(const T* values, std::int64_t n, T* total) {
  if (threadIdx.x != 0) return;
  T sum = *total;
  for (std::int64_t i = 0; i < n; ++i) sum += values[i];
  *total = sum;
}

// total += the values, by one thread: they are as many as a model has parameters.
template <class Launcher>
void add_in_order_cuda(const Launcher& launch, std::span<const double> values, double* total) {
  launch("sum in order", dim3(1), dim3(device::kWarp), in_order_kernel<double>, values.data(),
         static_cast<std::int64_t>(values.size()), total);
}

template <class Sum>
__global__ void gate_kernel(const Sum* loss, const Sum* square_sum, Sum clip, Gate* gate) {
  if (threadIdx.x == 0) *gate = gate_of(*loss, sqrt(*square_sum), clip);
}

template <class Launcher>
void set_gate_cuda(const Launcher& launch, const double* loss, const double* square_sum, double clip, Gate* gate) {
  launch("gate", dim3(1), dim3(device::kWarp), gate_kernel<double>, loss, square_sum, clip, gate);
}

}  // namespace fp8::optim
