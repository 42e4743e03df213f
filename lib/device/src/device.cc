// Device detection, setup, and copies between devices.
#include "fp8/device/device.h"

#include <cstring>

#include "cuda_memory.h"
#include "fp8/base/error.h"
#include "fp8/device/runtime.h"

namespace fp8::device {

int cuda_device_count() {
  std::string why;
  return cuda::count(why);
}

std::string why_no_cuda() {
  std::string why;
  return cuda::count(why) > 0 ? std::string() : why;
}

std::string cuda_identity(int index) { return cuda::identity(index); }

std::string runtime_version() {
  const int version = cuda::runtime();
  return version == 0 ? std::string()
                      : "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string runtime_driver() {
  const int version = cuda::runtime();
  if (version == 0) return {};
  return version >= 13000 ? "driver 580 or newer" : "driver 525 or newer";
}

std::vector<std::string> cuda_libraries(const std::string& name) {
  const bool twelve = runtime_version().starts_with("CUDA 12.");
  return {name + (twelve ? ".12" : ".13"), name + (twelve ? ".13" : ".12")};
}

std::size_t gpu_memory(const Context& ctx) { return ctx.stream == nullptr ? 0 : cuda::memory(*ctx.stream); }

Device::Device(DeviceType device, int index) : device_type_(device) {
  if (device == DeviceType::host) return;
  const int devices = cuda_device_count();
  if (devices == 0) throw Error("no usable GPU: " + why_no_cuda());
  if (index < 0 || index >= devices)
    throw Error("GPU " + std::to_string(index) + " requested, but only " + std::to_string(devices) + " available");
  stream_ = cuda::open(index);
}

Device::~Device() {
  if (stream_ != nullptr) cuda::close(stream_);
}

std::string Device::name() const { return device_type_ == DeviceType::host ? "CPU" : cuda::describe(*stream_); }

int Device::compute_capability() const { return device_type_ == DeviceType::host ? 0 : cuda::capability(*stream_); }

void copy_bytes(const Context& ctx, void* to, DeviceType to_device, const void* from, DeviceType from_device,
                std::size_t bytes) {
  if (ctx.dry || bytes == 0 || to == from) return;
  if (to_device == DeviceType::host && from_device == DeviceType::host) {
    std::memcpy(to, from, bytes);
  } else {
    if (ctx.stream == nullptr) throw Error("a copy to or from a device needs a context on that device");
    cuda::copy(*ctx.stream, to, to_device, from, from_device, bytes);
  }
}

void synchronize(const Context& ctx) {
  if (ctx.stream != nullptr && !ctx.dry) cuda::wait(*ctx.stream);
}

}  // namespace fp8::device
