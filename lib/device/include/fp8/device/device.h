/// Where memory lies and where work runs, and the context every op takes. One training code serves host and GPU: ops
/// look at the place of their tensors, never at a global. Allocation inside a step goes through the context's Arena
/// (arena.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace fp8::device {

/// Place of memory and of the code that touches it.
enum class Place : std::uint8_t { host, cuda };

class Arena;
class Profile;
struct Stream;  ///< a CUDA stream (cuda.h); the host has none and works in order

/// What an op needs besides its tensors. Cheap to copy.
struct Context {
  Place place = Place::host;   ///< where the tensors of this context lie
  Stream* stream = nullptr;    ///< order of device work; null on the host
  Arena* arena = nullptr;      ///< scratch memory of the step
  bool dry = false;            ///< only plan: allocate from the (dry) arena, compute nothing, touch no memory
  Profile* profile = nullptr;  ///< notes what operations take (profile.h); null: nobody does

  /// The same context with another arena.
  Context with(Arena& other) const {
    Context c = *this;
    c.arena = &other;
    return c;
  }
};

/// CUDA devices this process can use; 0 where there is none, no driver, or no CUDA in this build.
int cuda_device_count();

/// Why cuda_device_count() is 0, in one line without a full stop; empty where it is not.
std::string why_no_cuda();

/// Which card this process's CUDA device `index` is: its UUID in hexadecimal digits, the same in every process that
/// sees it. Empty where it is not told.
std::string cuda_identity(int index);

/// Opens a place for work: nothing for the host; for CUDA makes device `index` current on this thread and owns a stream
/// on it. One per process. Throws Error naming what is missing.
class Device {
 public:
  /// The host.
  Device() = default;
  /// A place; `index` counts this process's CUDA devices from 0.
  explicit Device(Place place, int index = 0);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();
  /// Where it works.
  Place place() const { return place_; }
  /// A context on it, without an arena.
  Context context() const { return {place_, stream_, nullptr, false}; }
  /// A context on it with this arena.
  Context context(Arena& arena) const { return {place_, stream_, &arena, false}; }
  /// "NVIDIA H200, compute capability 9.0, 139.8 GiB", or "CPU".
  std::string name() const;
  /// Major and minor compute capability, 90 for 9.0; 0 on the host.
  int compute_capability() const;

 private:
  Place place_ = Place::host;
  Stream* stream_ = nullptr;
};

/// Copies bytes within a place or between places, in the order of the context's stream. Host memory may be touched
/// again once it returns: what comes from a device is there, and what goes to one, or stays on it, only takes its turn.
/// Host memory goes through pinned memory that the stream keeps; one thread copies at a time. Throws Error.
void copy_bytes(const Context& ctx, void* to, Place to_place, const void* from, Place from_place, std::size_t bytes);

/// Returns when all work given to the context's stream is done; on the host at once. Throws Error of work that failed.
void synchronize(const Context& ctx);

/// Owned memory, aligned to 64 bytes, zero-filled pages, on one place. Movable, not copyable.
class Buffer {
 public:
  Buffer() = default;
  /// Takes `bytes` at `place`; throws Error naming `what` and the size when there is not enough.
  Buffer(std::size_t bytes, Place place, const char* what);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  /// First byte, aligned to 64; null when empty.
  std::byte* data() const { return data_; }
  /// Bytes.
  std::size_t size() const { return size_; }
  /// Where it lies.
  Place place() const { return place_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Place place_ = Place::host;
};

/// Threads that host loops use: OMP_NUM_THREADS, or the cores this process may run on.
int host_threads();

}  // namespace fp8::device
