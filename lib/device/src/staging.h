/// Copies between pageable host memory and a device through pieces of pinned memory, so that the copy engine transfers
/// one piece while the host copies the next, and uploads are asynchronous. Not thread-safe. Independent of CUDA: a
/// Mover transfers the bytes, so that tests can delay the transfers.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace fp8::device {

/// Operations of a device stream that Staging uses.
class Mover {
 public:
  Mover() = default;
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  virtual ~Mover() = default;
  /// Enqueues a copy from pinned memory to the device (`upload`) or back, in stream order.
  virtual void begin(void* to, const void* from, std::size_t bytes, bool upload) = 0;
  /// Records the event `mark` after all copies enqueued so far.
  virtual void note(std::size_t mark) = 0;
  /// Blocks until the last recorded event `mark` is done; returns at once if it was never recorded.
  virtual void wait(std::size_t mark) = 0;
};

/// Staged copies through pinned memory.
class Staging {
 public:
  static constexpr std::size_t kPieces = 8;  ///< maximum number of pieces in flight

  /// `pinned` is the staging memory, a multiple of kPieces bytes. Both arguments must outlive the object.
  Staging(Mover& mover, std::span<std::byte> pinned) : mover_(mover), pinned_(pinned) {}

  /// Copies host to device. `from` may be changed after the return; the copy completes in stream order.
  void upload(std::byte* to, const std::byte* from, std::size_t bytes);
  /// Copies device to host; returns when the copy and all preceding work are done.
  void download(std::byte* to, const std::byte* from, std::size_t bytes);

 private:
  std::size_t piece_bytes() const { return pinned_.size() / kPieces; }
  std::byte* piece(std::size_t i) const { return pinned_.data() + i * piece_bytes(); }

  Mover& mover_;
  std::span<std::byte> pinned_;
  std::size_t next_ = 0;  // piece to use next, the least recently used
};

}  // namespace fp8::device
