/// Devices, memory and the context that every op takes. The training code is the same for host and GPU: an op selects
/// its implementation by the device of its tensors. Memory inside a step is allocated from the context's Arena
/// (arena.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace fp8::device {

/// Type of device: host memory and CPU code, or a CUDA GPU.
enum class DeviceType : std::uint8_t { host, cuda };

class Arena;
class Profile;
struct Stream;  ///< a CUDA stream (cuda.h); the host has none

/// Arguments of an op besides its tensors. Cheap to copy.
struct Context {
  DeviceType device = DeviceType::host;  ///< device of the tensors
  Stream* stream = nullptr;              ///< stream for device work, or null on the host
  Arena* arena = nullptr;                ///< scratch memory of the step
  bool dry = false;                      ///< dry run: allocate from the (dry) arena, compute nothing, access no memory
  Profile* profile = nullptr;            ///< records the time of operations (profile.h); null: not recorded

  /// The same context with another arena.
  Context with(Arena& other) const {
    Context c = *this;
    c.arena = &other;
    return c;
  }
};

/// Number of CUDA devices that this process can use; 0 without a device, without a driver or in a build without CUDA.
int cuda_device_count();

/// The reason why cuda_device_count() is 0, one line without a full stop; empty if it is not 0.
std::string why_no_cuda();

/// UUID of this process's CUDA device `index` in hexadecimal digits, the same in every process. Empty if unknown.
std::string cuda_identity(int index);

/// A device to compute on. A CUDA device is made current on this thread and gets a stream, which the object owns; the
/// host needs no setup. One per process.
class Device {
 public:
  /// The host.
  Device() = default;
  /// `index` counts this process's CUDA devices from 0. Throws Error when there is no such device.
  explicit Device(DeviceType device, int index = 0);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();
  /// Type of the device.
  DeviceType type() const { return device_type_; }
  /// A context on this device, without an arena.
  Context context() const { return {device_type_, stream_, nullptr, false}; }
  /// A context on this device, with `arena`.
  Context context(Arena& arena) const { return {device_type_, stream_, &arena, false}; }
  /// "NVIDIA H200, compute capability 9.0, 139.8 GiB", or "CPU".
  std::string name() const;
  /// Major and minor compute capability, 90 for 9.0; 0 on the host.
  int compute_capability() const;

 private:
  DeviceType device_type_ = DeviceType::host;
  Stream* stream_ = nullptr;
};

/// Copies bytes on a device or between host and device, in stream order. Host memory may be accessed after the return:
/// a copy to the host is complete; a copy to or within a device is only enqueued. Host memory is staged through pinned
/// memory of the stream. Not thread-safe for one stream. Throws Error when CUDA fails.
void copy_bytes(const Context& ctx, void* to, DeviceType to_device, const void* from, DeviceType from_device,
                std::size_t bytes);

/// Blocks until all work of the context's stream is done; returns at once on the host. Throws Error when work failed.
void synchronize(const Context& ctx);

/// Owned memory on one device, zero-filled, aligned to 64 bytes. Movable, not copyable.
class Buffer {
 public:
  Buffer() = default;
  /// Allocates `bytes` on `device`; throws Error naming `what` and the size when memory is insufficient.
  Buffer(std::size_t bytes, DeviceType device, const char* what);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  /// First byte, aligned to 64; null when empty.
  std::byte* data() const { return data_; }
  /// Size in bytes.
  std::size_t size() const { return size_; }
  /// Device of the memory.
  DeviceType device() const { return device_type_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  DeviceType device_type_ = DeviceType::host;
};

/// Throws Error: this build has no CUDA. For the stubs of builds without CUDA; defined only there.
[[noreturn]] void no_cuda();

/// Number of threads of host loops: OMP_NUM_THREADS, or the number of cores that this process may use.
int host_threads();

}  // namespace fp8::device
