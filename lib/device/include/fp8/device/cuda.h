/// What sources that need CUDA share: streams, errors with file and call, and, for those compiled by nvcc, launches
/// that are checked. Not for other sources.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "fp8/device/device.h"

namespace fp8::device {

/// A stream and the device it is on.
struct Stream {
  cudaStream_t handle = nullptr;  ///< never the default stream
  int index = 0;                  ///< of the device, as cudaSetDevice counts
  int multiprocessors = 0;        ///< of the device
  int compute_capability = 0;     ///< 90 for 9.0
  /// What crates keep for as long as the stream lives, by a name of their own: handles and plans of libraries.
  std::map<std::string, std::shared_ptr<void>> kept{};
};

/// Throws Error "CUDA: call: what the runtime says (file:line)" unless `result` is cudaSuccess.
void check_cuda(cudaError_t result, const char* call, const char* file, int line);

/// A moment in a stream of the current device. What was never recorded is past.
class Event {
 public:
  /// Of the current device.
  Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();
  /// Takes the moment: after all that the stream was given so far.
  void record(cudaStream_t stream) const;
  /// Work that `stream` is given from here on comes after the moment.
  void make_wait(cudaStream_t stream) const;
  /// The host waits for it.
  void wait() const;
  /// Whether it is past. Throws Error of work before it that failed.
  bool done() const;

 private:
  cudaEvent_t handle_ = nullptr;
};

/// The CUDA stream of a context on a device.
inline cudaStream_t stream_of(const Context& ctx) { return ctx.stream->handle; }

#ifdef __CUDACC__
/// Launches kernels on a context's stream and checks every launch. What decides on grids and kernels is a template over
/// the launcher, so that tests run the same code on the host (tests/support/cuda_shim.h).
class CudaLauncher {
 public:
  /// Of a context on a device, not dry.
  explicit CudaLauncher(const Context& ctx) : stream_(*ctx.stream) {}
  /// Multiprocessors of the device, for grids that are no larger than useful.
  int multiprocessors() const { return stream_.multiprocessors; }
  /// Launches `kernel`; nothing happens where the grid is empty. `name` is for the error.
  template <class... P, class... A>
  void operator()(const char* name, dim3 grid, dim3 block, void (*kernel)(P...), A&&... arguments) const {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    kernel<<<grid, block, 0, stream_.handle>>>(static_cast<P>(std::forward<A>(arguments))...);
    check_cuda(cudaGetLastError(), name, "launch", 0);
  }

 private:
  const Stream& stream_;
};
#endif

}  // namespace fp8::device

/// Calls the CUDA runtime and throws Error when it refuses.
#define FP8_CUDA(call) ::fp8::device::check_cuda((call), #call, __FILE__, __LINE__)
