/// Helpers for sources that need CUDA: streams, events, errors with file and call, and, for sources compiled by nvcc,
/// checked kernel launches.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "fp8/device/device.h"

namespace fp8::device {

/// A CUDA stream and properties of its device.
struct Stream {
  cudaStream_t handle = nullptr;  ///< never the default stream
  int index = 0;                  ///< device number for cudaSetDevice
  int multiprocessors = 0;        ///< number of multiprocessors of the device
  int compute_capability = 0;     ///< 90 for 9.0
  /// Objects of other crates with the lifetime of the stream, by name: library handles and plans.
  std::map<std::string, std::shared_ptr<void>> kept{};
  /// Blocks of so many threads of a kernel that a multiprocessor holds; see CudaLauncher::places().
  std::map<std::pair<const void*, int>, int> resident{};
};

/// Throws Error "CUDA: call: error string (file:line)" unless `result` is cudaSuccess.
void check_cuda(cudaError_t result, const char* call, const char* file, int line);

/// A CUDA event of the current device. An event that was never recorded counts as done.
class Event {
 public:
  /// Creates an event on the current device.
  Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();
  /// Records the event after all work submitted to the stream so far.
  void record(cudaStream_t stream) const;
  /// Makes work submitted to `stream` from now on wait for the event.
  void make_wait(cudaStream_t stream) const;
  /// Blocks the host until the event is done.
  void wait() const;
  /// Whether the event is done. Throws Error when preceding work failed.
  bool done() const;

 private:
  cudaEvent_t handle_ = nullptr;
};

/// The CUDA stream of a context on a device.
inline cudaStream_t stream_of(const Context& ctx) { return ctx.stream->handle; }

#ifdef __CUDACC__
/// Launches kernels on a context's stream and checks every launch. Code that chooses grids and kernels is a template
/// over the launcher, so that tests run it on the host (tests/support/cuda_shim.h).
class CudaLauncher {
 public:
  /// `ctx` must be on a CUDA device and not dry.
  explicit CudaLauncher(const Context& ctx) : stream_(*ctx.stream) {}
  /// Number of multiprocessors of the device, to limit the size of grids.
  int multiprocessors() const { return stream_.multiprocessors; }
  /// Blocks of `threads` threads of a kernel that the device holds at once, which its registers and shared memory
  /// limit. A grid of that many has no last wave that leaves multiprocessors idle.
  template <class... P>
  std::int64_t places(void (*kernel)(P...), int threads) const {
    const auto [found, added] = stream_.resident.try_emplace({reinterpret_cast<const void*>(kernel), threads}, 0);
    if (added)
      check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&found->second, kernel, threads, 0),
                 "cudaOccupancyMaxActiveBlocksPerMultiprocessor", "launch", 0);
    return std::int64_t{multiprocessors()} * found->second;
  }
  /// Launches `kernel` unless the grid is empty. `name` appears in the error.
  template <class... P, class... A>
  void operator()(const char* name, dim3 grid, dim3 block, void (*kernel)(P...), A&&... arguments) const {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    kernel<<<grid, block, 0, stream_.handle>>>(static_cast<P>(std::forward<A>(arguments))...);
    check_cuda(cudaGetLastError(), name, "launch", 0);
  }

 private:
  Stream& stream_;
};
#endif

}  // namespace fp8::device

/// Calls a CUDA runtime function and throws Error when it fails.
#define FP8_CUDA(call) ::fp8::device::check_cuda((call), #call, __FILE__, __LINE__)
