/// Replaces lib/device/include/fp8/device/cuda.h in tests/libraries: streams, events and the header of the CUDA runtime
/// are the real ones, and launches are put on streams of the stand-in (runtime.h), which runs them in
/// tests/support/cuda_shim.h.
#pragma once

#include "../../../../../lib/device/include/fp8/device/cuda.h"
// Macros of the runtime's headers that mean nothing without nvcc.
#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#include "cuda_shim.h"
#include "runtime.h"

namespace fp8::device {

/// Puts kernels on the context's stream, like the CudaLauncher of nvcc.
class CudaLauncher {
 public:
  explicit CudaLauncher(const Context& ctx) : stream_(*ctx.stream) {}
  int multiprocessors() const { return stream_.multiprocessors; }
  template <class... P>
  std::int64_t places(void (*)(P...), int) const {
    return std::int64_t{8} * multiprocessors();
  }
  /// The arguments are copied now, as nvcc's launches do, and the kernel runs when the stream comes to it.
  template <class... P, class... A>
  void operator()(const char* name, dim3 grid, dim3 block, void (*kernel)(P...), A&&... arguments) const {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    runtime::launch(
        stream_.handle, name,
        [name, grid, block, kernel, copies = std::tuple<P...>(static_cast<P>(std::forward<A>(arguments))...)] {
          shim::run(name, grid, block, [&] {
            const std::tuple<P...> of_thread = copies;
            shim::begin_kernel();
            std::apply(kernel, of_thread);
          });
          return true;
        });
  }

 private:
  const Stream& stream_;
};

}  // namespace fp8::device
