/// Replaces lib/device/include/fp8/device/cuda.h in tests/kernels: launches run in tests/support/cuda_shim.h.
#pragma once

#include "cuda_shim.h"
#include "fp8/device/device.h"

namespace fp8::device {

/// A device of compute capability 9.0 with the host's memory.
struct Stream {
  int compute_capability = 90;       ///< the value in the header that this one replaces
  const void* downloaded = nullptr;  ///< source of the download that was started last
};

using CudaLauncher = shim::Launcher;

}  // namespace fp8::device
