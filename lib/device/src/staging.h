/// Copies between the host's ordinary memory and a device through pinned memory in pieces, so that the copy engine
/// works while the host copies the next piece, and an upload need not be waited for. Of one thread. Knows no CUDA: what
/// moves bytes is handed in, so that tests can move them late.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace fp8::device {

/// What Staging needs of a device's stream.
class Mover {
 public:
  Mover() = default;
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  virtual ~Mover() = default;
  /// Begins a copy from pinned memory to the device or back, behind all work before.
  virtual void begin(void* to, const void* from, std::size_t bytes, bool upload) = 0;
  /// Notes, as `mark`, what has begun so far.
  virtual void note(std::size_t mark) = 0;
  /// Returns when what the last note of `mark` stands for is done; at once where there was none.
  virtual void wait(std::size_t mark) = 0;
};

/// See the top of this file.
class Staging {
 public:
  static constexpr std::size_t kPieces = 8;  ///< under way at once

  /// Works in `pinned`, a multiple of kPieces bytes. Both outlive it.
  Staging(Mover& mover, std::span<std::byte> pinned) : mover_(mover), pinned_(pinned) {}

  /// Host to device. `from` may be touched again once it returns; the copy takes its turn in the stream.
  void upload(std::byte* to, const std::byte* from, std::size_t bytes);
  /// Device to host; returns when `to` is filled, and so all work before is done.
  void download(std::byte* to, const std::byte* from, std::size_t bytes);

 private:
  std::size_t piece_bytes() const { return pinned_.size() / kPieces; }
  std::byte* piece(std::size_t i) const { return pinned_.data() + i * piece_bytes(); }

  Mover& mover_;
  std::span<std::byte> pinned_;
  std::size_t next_ = 0;  // piece to be used next, the one whose last use lies furthest back
};

}  // namespace fp8::device
