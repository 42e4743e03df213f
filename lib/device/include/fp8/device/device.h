/// Where memory lies and where work runs, and the context every op takes. One training code serves host and GPU: ops
/// look at the place of their tensors, never at a global. Allocation inside a step goes through the context's Arena
/// (arena.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fp8::device {

/// Place of memory and of the code that touches it.
enum class Place : std::uint8_t { host, cuda };

class Arena;
struct Stream;  ///< a CUDA stream behind the scenes; the host has none and works in order

/// What an op needs besides its tensors. Cheap to copy.
struct Context {
  Place place = Place::host;  ///< where the tensors of this context lie
  Stream* stream = nullptr;   ///< order of device work; null on the host
  Arena* arena = nullptr;     ///< scratch memory of the step
  bool dry = false;           ///< only plan: allocate from the (dry) arena, compute nothing, touch no memory

  /// The same context with another arena.
  Context with(Arena& other) const {
    Context c = *this;
    c.arena = &other;
    return c;
  }
};

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
