/// Runs kernel bodies (.cuh) on the host, for tests without a GPU. Blocks run one after the other; each thread of a
/// block is a fiber; barriers and warp operations block until all participants arrive. A launch throws
/// std::runtime_error for what a GPU would refuse or leave undefined: grids and blocks beyond CUDA's limits, a barrier
/// or shuffle that some threads never reach and, if the kernel is compiled with the checks of shim_memory.h, races,
/// reads of unwritten shared memory and misaligned accesses. Successive launches run threads and blocks in different
/// orders. In builds with AddressSanitizer, which excludes those checks, it reports out-of-bounds accesses. The shim is
/// slow. Include it before any .cuh.
#pragma once

#define FP8_CUDA_SHIM 1

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "shim_launches.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __grid_constant__
// One block runs at a time. Thread-local variables of the program are one range of addresses, also those of templates.
#define __shared__ static thread_local

#ifndef CUDART_VERSION  // else the headers of CUDA define these types
/// The type of the same name in CUDA.
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
/// The type of the same name in CUDA.
struct alignas(8) uint2 {
  unsigned x, y;
};
/// The type of the same name in CUDA.
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
#endif

namespace fp8::shim {

/// Whether this source is compiled with the checks of shim_memory.h.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kChecksMemory = true;
#else
inline constexpr bool kChecksMemory = false;
#endif

/// Indices of the running thread. The scheduler sets them before it resumes a fiber.
struct Indices {
  dim3 thread, block, block_size, grid_size;
};
extern Indices now;

/// Order in which blocks, and the threads of a block between two barriers, run. A kernel whose result depends on it
/// lacks a barrier.
enum class Order : std::uint8_t { forward, reverse, shuffled };

/// The order of the next launch: each in turn, or the one that FP8_SHIM_ORDER (forward, reverse or shuffled) names.
Order next_order();

/// From here to the end of the thread, its accesses to memory are checked and counted.
void begin_kernel();

/// Runs `body` for every thread of every block. Throws std::runtime_error that names `name` for what the comment at the
/// top of this file lists; rethrows the exceptions of a thread. Launches (shim_launches.h) can choose some blocks.
void run(const std::string& name, dim3 grid, dim3 block, const std::function<void()>& body, Order order = next_order());

/// Waits for all threads of the block.
void block_barrier();
/// Waits for the lanes of `mask` in this thread's warp. `orders_memory`: accesses before it happen before those after.
void warp_barrier(unsigned mask, bool orders_memory);
/// Publishes `mine` (`bytes`, at most 16) to the lanes of `mask` and copies the value of `lane` to `theirs`.
void exchange(unsigned mask, const void* mine, void* theirs, std::size_t bytes, int lane);
/// Index of this thread in its warp.
int lane();
/// While an object exists, accesses of the running thread are one atomic operation.
class Atomic {
 public:
  Atomic();
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;
  ~Atomic();
};

/// Launches of one kernel and, if it is compiled with the checks of shim_memory.h, bytes of global memory.
struct Work {
  int launches = 0;
  std::uint64_t read = 0, written = 0;  ///< bytes that a launch reads, or writes, once or more
  std::uint64_t accessed = 0;           ///< the same for each access: bytes that threads load and store
};
/// The work of all launches since the start of the program, by the name of the launch.
std::map<std::string, Work>& work();

/// The number of multiprocessors, which depends on the blocks that run.
int multiprocessors();

/// CudaLauncher for the host.
class Launcher {
 public:
  Launcher() = default;
  /// CudaLauncher takes a context; the shim ignores it.
  template <class Context>
  explicit Launcher(const Context&) {}
  /// See Blocks.
  int multiprocessors() const { return shim::multiprocessors(); }
  /// 8 blocks on each multiprocessor, whatever they need.
  template <class... P>
  std::int64_t places(void (*)(P...), int) const {
    return std::int64_t{8} * multiprocessors();
  }
  /// Runs the kernel.
  template <class... P, class... A>
  void operator()(const char* name, dim3 grid, dim3 block, void (*kernel)(P...), A&&... arguments) const {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    const auto body_of_thread = [&] {
      void (*const body)(P...) = kernel;
      const std::tuple<P...> copies(static_cast<P>(arguments)...);
      begin_kernel();
      std::apply(body, copies);
    };
    run(name, grid, block, body_of_thread);
  }
};

}  // namespace fp8::shim

#define threadIdx (::fp8::shim::now.thread)
#define blockIdx (::fp8::shim::now.block)
#define blockDim (::fp8::shim::now.block_size)
#define gridDim (::fp8::shim::now.grid_size)

inline void __syncthreads() { fp8::shim::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) { fp8::shim::warp_barrier(mask, true); }

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

// The scheduler switches threads only at barriers, so a plain addition is atomic.
template <class T>
T atomicAdd(T* at, T v) {
  const fp8::shim::Atomic atomic;
  const T before = *at;
  *at = static_cast<T>(before + v);
  return before;
}
template <class T>
T atomicMax(T* at, T v) {
  const fp8::shim::Atomic atomic;
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
/// PTX prmt: byte i of the result is the byte of {b, a} that nibble i of `selector` names.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7u) & 0xFFu) << 8 * i;
  return result;
}

namespace fp8::shim {

/// Code of one float as PTX cvt.rn.satfinite defines it: rounded to nearest even in a format with `fraction` fraction
/// bits, smallest normal exponent `least` and largest value `max`, subnormals supported; magnitudes above `max`, and
/// infinity, give `max`; NaN gives 0x7F. In double, where every step is exact.
inline unsigned cvt_rn_satfinite(float v, int fraction, int least, double max) {
  if (v != v) return 0x7Fu;
  const unsigned sign = std::signbit(v) ? 0x80u : 0u;
  const double magnitude = std::min(std::fabs(static_cast<double>(v)), 2 * max);
  const int exponent = magnitude == 0 ? least : std::max(least, std::ilogb(magnitude));
  const double spacings = std::nearbyint(std::ldexp(magnitude, fraction - exponent));  // ties to even
  const double rounded = std::min(std::ldexp(spacings, exponent - fraction), max);
  if (rounded < std::ldexp(1.0, least)) return sign | static_cast<unsigned>(std::ldexp(rounded, fraction - least));
  const int e = std::ilogb(rounded);
  const auto significand = static_cast<unsigned>(std::ldexp(rounded, fraction - e));  // significand with the hidden bit
  return sign | (static_cast<unsigned>(e - least + 1) << fraction) | (significand & ((1u << fraction) - 1));
}
/// PTX cvt.rn.satfinite.e4m3x2.f32.
inline std::uint16_t cvt_e4m3x2(float high, float low) {
  return static_cast<std::uint16_t>(cvt_rn_satfinite(high, 3, -6, 448) << 8 | cvt_rn_satfinite(low, 3, -6, 448));
}
/// PTX cvt.rn.satfinite.e5m2x2.f32.
inline std::uint16_t cvt_e5m2x2(float high, float low) {
  return static_cast<std::uint16_t>(cvt_rn_satfinite(high, 2, -14, 57344) << 8 | cvt_rn_satfinite(low, 2, -14, 57344));
}

}  // namespace fp8::shim
