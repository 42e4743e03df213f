// AdamW, and the gradient's norm and gate, on a device. Each thread updates the elements that share one random counter,
// so that every element is rounded as on the host; adjacent threads access adjacent elements.
#pragma once

#include <algorithm>

#include "adamw_kernels.h"
#include "fp8/base/round.h"
#include "fp8/device/magnitudes.h"
#include "fp8/dtype/dispatch.h"

namespace fp8::optim {

inline constexpr int kUpdateThreads = 256;

// Arguments of an update besides its arrays.
struct UpdateOf {
  Coefficients coefficients;
  std::int64_t first;  // global index of element 0
  std::int64_t size;
  std::uint64_t seed;
  std::int64_t update;
  std::uint32_t tensor;
  const Gate* gate;
};

template <class P, class M, class C>
__global__ void adamw_kernel(Arrays<P, M, C> a, UpdateOf u, unsigned* amax) {
  constexpr bool kRounds = sizeof(P) != sizeof(float) || sizeof(M) != sizeof(float);
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kUpdateThreads + threadIdx.x;
  const std::int64_t block = u.first / kNoiseBlock + thread / kNoiseLanes, lane = thread % kNoiseLanes;
  std::array<std::uint32_t, 8> noise{};
  if constexpr (kRounds)
    noise =
        rounding_noise(u.seed, u.update, u.tensor, static_cast<std::uint64_t>(block), static_cast<std::uint32_t>(lane));
  const Gate gate = *u.gate;
  unsigned largest = 0;
  for (int s = 0; s < 8; ++s) {
    const std::int64_t i = block * kNoiseBlock + s * kNoiseLanes + lane - u.first;
    if (i < 0 || i >= u.size) continue;
    P stored = a.master[i];
    if (gate.skip == 0) {
      const std::uint32_t random = noise[static_cast<std::size_t>(s)];
      const Element e = adamw_element({dtype::to_float(stored), dtype::to_float(a.m[i]), dtype::to_float(a.v[i])},
                                      a.gradient[i] * gate.gradient_scale, u.coefficients);
      stored = store_rounded<P>(e.p, random);
      a.master[i] = stored;
      a.m[i] = store_rounded<M>(e.m, random >> 16);
      a.v[i] = store_rounded<M>(e.v, noise_of_v(random));
    }
    const float value = dtype::to_float(stored);
    if constexpr (sizeof(C) > 1) a.compute_weight[i] = dtype::from_float<C>(value);
    largest = device::LargestBits{}(largest, std::bit_cast<unsigned>(value) & 0x7FFFFFFFu);
  }
  if (amax == nullptr) return;
  largest = device::block_combine<kUpdateThreads>(largest, device::LargestBits{});
  if (threadIdx.x == 0) atomicMax(amax, largest);
}

// `block` was checked; its compute weight is empty if it is the master itself.
template <class Launcher>
void adamw_cuda(const Launcher& launch, const AdamwBlock& block, const Settings& settings, const Scalars& scalars) {
  const std::int64_t n = block.master.size();
  const UpdateOf u{coefficients_of(settings, scalars, block.decay),
                   block.first_element,
                   n,
                   scalars.seed,
                   scalars.update,
                   block.tensor,
                   scalars.gate};
  auto* const amax = static_cast<unsigned*>(block.amax.data);
  if (amax != nullptr)
    device::clear_signs(launch, block.amax.as<float>(), 1);  // the previous value takes part in the maximum
  const std::int64_t noise_blocks = divide_up(block.first_element + n, kNoiseBlock) - block.first_element / kNoiseBlock;
  const std::int64_t threads = noise_blocks * kNoiseLanes;
  const dim3 grid(device::blocks_for(threads, kUpdateThreads));
  dtype::with_float_type(block.master.dtype, "AdamW", [&]<class P>() {
    dtype::with_float_type(block.m.dtype, "AdamW", [&]<class M>() {
      const auto run = [&]<class C>(C* compute_weight) {
        launch("adamw", grid, dim3(kUpdateThreads), adamw_kernel<P, M, C>,
               Arrays<P, M, C>{block.master.as<P>(), block.gradient.as<float>(), block.m.as<M>(), block.v.as<M>(),
                               compute_weight},
               u, amax);
      };
      if (block.compute_weight.empty()) return run(static_cast<NoComputeWeight*>(nullptr));
      dtype::with_float_type(block.compute_weight.dtype, "AdamW",
                             [&]<class C>() { run(block.compute_weight.as<C>()); });
    });
  });
}

inline constexpr int kSumThreads = 256;
inline constexpr std::int64_t kSumPiece = 1 << 15;  // elements of a block

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

inline std::int64_t pieces_to_sum(std::int64_t n) { return divide_up(n, kSumPiece); }

// total += sum of Of over x; `partial` has pieces_to_sum(n) elements.
template <class Of, class Launcher>
void add_sums_cuda(const Launcher& launch, const float* x, std::int64_t n, double* partial, double* total) {
  const std::int64_t pieces = pieces_to_sum(n);
  launch("sums", dim3(static_cast<unsigned>(pieces)), dim3(kSumThreads), sum_kernel<Of, float>, x, n, partial);
  launch("sums: total", dim3(1), dim3(kSumThreads), total_kernel<double>, partial, pieces, total);
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
