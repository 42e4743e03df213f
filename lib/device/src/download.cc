// Copies on the host, which are made at once; memory_cuda.cu has the copies of a device.
#include "fp8/device/download.h"

#include <cstring>
#include <utility>

#include "cuda_memory.h"
#include "fp8/base/error.h"

namespace fp8::device {

Download::Download(const Context& ctx, const void* from, DeviceType device, std::size_t bytes) {
  if (ctx.dry || bytes == 0) return;
  from_ = from;
  bytes_ = bytes;
  if (device == DeviceType::host) return;
  if (ctx.stream == nullptr) throw Error("a copy from a device needs a context on that device");
  cuda::start_download(*ctx.stream, from, bytes);
  stream_ = ctx.stream;
}

Download::~Download() {
  if (stream_ != nullptr) cuda::abandon_download(*stream_);
}

void Download::finish(void* to) {
  if (bytes_ == 0) return;
  if (stream_ == nullptr) {
    std::memcpy(to, from_, bytes_);
  } else {
    Stream& stream = *std::exchange(stream_, nullptr);
    cuda::finish_download(stream, to, bytes_);
  }
  bytes_ = 0;
}

}  // namespace fp8::device
