/// A copy to the host that runs beside later work of a device.
#pragma once

#include <cstddef>

#include "fp8/device/device.h"

namespace fp8::device {

/// Copies bytes from a device to the host on a stream of its own: the copy follows the work that the context's stream
/// has when it starts, and finish() does not wait for work that is enqueued later. From the host it copies in finish().
/// One copy of a stream at a time. Not thread-safe for one stream.
class Download {
 public:
  /// Starts the copy of `bytes` from `from`, memory of `device`, which must not change before finish() returns. With
  /// ctx.dry nothing is copied. Throws Error if CUDA fails, or if another copy of the stream has not finished.
  Download(const Context& ctx, const void* from, DeviceType device, std::size_t bytes);
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;
  /// Waits for a copy that was not finished.
  ~Download();
  /// Blocks until the copy is done, and stores the bytes in `to`, memory of the host. Call it once. Throws Error if
  /// work before the copy failed.
  void finish(void* to);

 private:
  Stream* stream_ = nullptr;  // null for the host, in a dry context and after finish()
  const void* from_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace fp8::device
