/// Building blocks of kernels: 16-byte packs, reductions over a warp or a block in a fixed order. Kernel bodies are in
/// .cuh files, separate from their launches: nvcc compiles them for the device, and tests compile the same text for the
/// host with tests/support/cuda_shim.h, which runs every thread. Shared memory is static; blocks are one-dimensional,
/// of whole warps and at most 1024 threads.
#pragma once

#include <cstdint>

#include "fp8/base/round.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#elif !defined(FP8_CUDA_SHIM)
#error "kernel bodies are compiled by nvcc, or for the host after tests/support/cuda_shim.h"
#endif

/// Pragmas before a loop: FP8_UNROLL unrolls it fully, so that arrays that it indexes stay in registers;
/// FP8_UNROLL_BY_4 unrolls it by 4, so that four loads are in flight; FP8_NO_UNROLL keeps rare paths small.
#ifdef __CUDACC__
#define FP8_UNROLL _Pragma("unroll")
#define FP8_UNROLL_BY_4 _Pragma("unroll 4")
#define FP8_NO_UNROLL _Pragma("unroll 1")
#else
#define FP8_UNROLL
#define FP8_UNROLL_BY_4
#define FP8_NO_UNROLL
#endif

namespace fp8::device {

inline constexpr int kWarp = 32;                    ///< threads of a warp
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;  ///< mask of a whole warp

/// 16 bytes of T, loaded and stored at once; the address must be a multiple of 16.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));  ///< elements
  T at[kSize];                                                    ///< elements in memory order
};

/// Whether p and a row stride (in elements of T) allow 16-byte accesses to every row.
template <class T>
__host__ __device__ inline bool packs(const T* p, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0 && stride * static_cast<std::int64_t>(sizeof(T)) % 16 == 0;
}

/// Number of blocks of a grid for `count` elements, `each` per block.
inline unsigned blocks_for(std::int64_t count, std::int64_t each) {
  return static_cast<unsigned>(divide_up(count, each));
}

/// Reduces v over the lanes of a warp with butterfly shuffles; every lane gets the same bits.
template <class T, class Combine>
__device__ inline T warp_combine(T v, Combine combine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, v, distance);
    const bool low = (static_cast<int>(threadIdx.x) & distance) == 0;  // the same order of operands on both sides
    v = low ? combine(v, other) : combine(other, v);
  }
  return v;
}

/// Reduces v over a block of Threads threads (a multiple of 32) in a fixed order; every thread gets the same bits, in
/// every launch. Contains barriers: all threads of the block must call it.
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

/// Sum, for warp_combine() and block_combine().
struct Add {
  /// a + b.
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// Maximum of the bits of two magnitudes; the bits order like the values, with NaN above all.
struct LargestBits {
  /// The larger number.
  __device__ unsigned operator()(unsigned a, unsigned b) const { return a < b ? b : a; }
};

}  // namespace fp8::device
