/// Runs kernel bodies (.cuh) on the host, for tests without a GPU: blocks one after the other, each thread of a block a
/// fiber, barriers and warp operations that truly wait. A barrier or shuffle that some threads never reach is an error,
/// and so is every access past an end under AddressSanitizer. Not for speed, not for races: the order of threads is
/// fixed. Include it before any .cuh.
#pragma once

#define FP8_CUDA_SHIM 1

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static  // one block runs at a time

/// As in CUDA.
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
/// As in CUDA.
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

namespace fp8::shim {

/// What a running thread sees. Set by the scheduler before a fiber goes on.
struct Indices {
  dim3 thread, block, block_size, grid_size;
};
extern Indices now;

/// Runs `body` for every thread of every block. Throws std::runtime_error naming `name` where threads wait for each
/// other in vain, and what a thread throws.
void run(const std::string& name, dim3 grid, dim3 block, const std::function<void()>& body);

/// Waits for all threads of the block.
void block_barrier();
/// Waits for the lanes of `mask` in this thread's warp.
void warp_barrier(unsigned mask);
/// Leaves `bytes` (at most 16) for the lanes of `mask` and returns what `lane` left.
void exchange(unsigned mask, const void* mine, void* theirs, std::size_t bytes, int lane);
/// This thread's lane.
int lane();

/// What CudaLauncher does, on the host.
class Launcher {
 public:
  Launcher() = default;
  /// As CudaLauncher is made of a context.
  template <class Context>
  explicit Launcher(const Context&) {}
  /// A small machine, so that grids that are capped are exercised.
  int multiprocessors() const { return 3; }
  /// Runs the kernel; launches are counted.
  template <class... P, class... A>
  void operator()(const char* name, dim3 grid, dim3 block, void (*kernel)(P...), A&&... arguments) const {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    run(name, grid, block, [&] { kernel(static_cast<P>(arguments)...); });
    ++launches;
  }
  mutable int launches = 0;  ///< so far
};

}  // namespace fp8::shim

#define threadIdx (::fp8::shim::now.thread)
#define blockIdx (::fp8::shim::now.block)
#define blockDim (::fp8::shim::now.block_size)
#define gridDim (::fp8::shim::now.grid_size)

inline void __syncthreads() { fp8::shim::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { fp8::shim::warp_barrier(mask); }

template <class T>
T __shfl_sync(unsigned mask, T v, int from) {
  T other;
  fp8::shim::exchange(mask, &v, &other, sizeof(T), from & 31);
  return other;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int distance) {
  return __shfl_sync(mask, v, fp8::shim::lane() ^ distance);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned distance) {
  const int from = fp8::shim::lane() + static_cast<int>(distance);
  return __shfl_sync(mask, v, from < 32 ? from : fp8::shim::lane());
}

// Threads take turns only at barriers, so a plain addition is atomic here.
template <class T>
T atomicAdd(T* at, T v) {
  const T before = *at;
  *at = static_cast<T>(before + v);
  return before;
}
template <class T>
T atomicMax(T* at, T v) {
  const T before = *at;
  *at = std::max(before, v);
  return before;
}
template <class T>
T __ldg(const T* at) {
  return *at;
}
inline unsigned __float_as_uint(float v) {
  unsigned u;
  std::memcpy(&u, &v, sizeof u);
  return u;
}
inline float __uint_as_float(unsigned u) {
  float v;
  std::memcpy(&v, &u, sizeof v);
  return v;
}
