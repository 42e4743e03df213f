/// What kernel bodies are made of: 16-byte packs, sums and maxima over a warp or a block in a fixed order. Kernel
/// bodies stand in .cuh files, apart from their launches: nvcc compiles them for the device, and tests compile the same
/// text for the host after including tests/support/cuda_shim.h, thread by thread. Shared memory is static, blocks have
/// one dimension of whole warps, at most 1024 threads.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#elif !defined(FP8_CUDA_SHIM)
#error "kernel bodies are compiled by nvcc, or for the host after tests/support/cuda_shim.h"
#endif

/// Before a loop: all its rounds side by side, so that arrays it walks stay in registers; or four of them, so that as
/// many loads are in flight.
#ifdef __CUDACC__
#define FP8_UNROLL _Pragma("unroll")
#define FP8_UNROLL_BY_4 _Pragma("unroll 4")
#else
#define FP8_UNROLL
#define FP8_UNROLL_BY_4
#endif

namespace fp8::device {

inline constexpr int kWarp = 32;                    ///< threads of a warp
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;  ///< mask of a whole warp

/// 16 bytes of T, loaded and stored at once; the address must be a multiple of 16.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));  ///< elements
  T at[kSize];                                                    ///< in memory order
};

/// Whether p and a row stride (in elements of T) allow 16-byte accesses to every row.
template <class T>
__host__ __device__ inline bool packs(const T* p, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && stride * static_cast<std::int64_t>(sizeof(T)) % 16 == 0;
}

/// Smallest number of `size` that hold `count`.
__host__ __device__ inline constexpr std::int64_t divide_up(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

/// Blocks of a grid, one for each `each` of `count` things.
inline unsigned blocks_for(std::int64_t count, std::int64_t each) {
  return static_cast<unsigned>(divide_up(count, each));
}

/// Combines v over the lanes of a warp by halving distances; every lane gets the same bits.
template <class T, class Combine>
__device__ inline T warp_combine(T v, Combine combine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, v, distance);
    const bool low = (static_cast<int>(threadIdx.x) & distance) == 0;  // the same order of operands on both sides
    v = low ? combine(v, other) : combine(other, v);
  }
  return v;
}

/// Combines v over a block of Threads threads (a multiple of 32); every thread gets the same bits, the same again in
/// the next launch. Contains barriers: all threads of the block must call it.
template <int Threads, class T, class Combine>
__device__ inline T block_combine(T v, Combine combine) {
  static_assert(Threads % kWarp == 0 && Threads <= 1024);
  constexpr int kWarps = Threads / kWarp;
  __shared__ T of_warp[kWarps];
  v = warp_combine(v, combine);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  __syncthreads();  // an earlier call may still be reading
  if (static_cast<int>(threadIdx.x) % kWarp == 0) of_warp[warp] = v;
  __syncthreads();
  T all = of_warp[0];
  for (int w = 1; w < kWarps; ++w) all = combine(all, of_warp[w]);
  return all;
}

/// Adds.
struct Add {
  /// a + b.
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// Takes the larger of two magnitudes by their bits, which order as they do, NaN above all.
struct LargestBits {
  /// The larger number.
  __device__ unsigned operator()(unsigned a, unsigned b) const { return a < b ? b : a; }
};

}  // namespace fp8::device
