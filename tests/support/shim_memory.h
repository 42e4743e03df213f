/// Checks of every memory access of kernels that run in cuda_shim. The sources are compiled with
/// -fsanitize=thread,alignment, but the program is not linked with a sanitizer's runtime: shim_memory.cc defines the
/// functions that the compiler calls for each access (__tsan_read4, ...) and for each misaligned one, and checks the
/// accesses against what CUDA guarantees: accesses of two threads of a block are ordered by __syncthreads, accesses
/// of two threads of a warp also by __syncwarp, and by no shuffle; two blocks of a launch are not ordered. A
/// __syncwarp of some lanes counts as one of the whole warp. Not checked: registers and local variables, and whether
/// addresses are in bounds, which AddressSanitizer checks in builds of its own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace fp8::shim {

/// A range of addresses.
struct Range {
  std::uintptr_t begin = 0, end = 0;
  /// Whether `at` is in it.
  bool has(std::uintptr_t at) const { return at >= begin && at < end; }
};

/// The thread-local variables of the program: the shared memory of all kernels.
Range shared_memory();

/// The kind of an access.
enum class Access : std::uint8_t { read, write, atomic };

/// When and by whom an address was accessed. An interval is the time between two barriers of one block; intervals of
/// all blocks and launches are numbered in order of execution. Packed into one word, since each access reads and writes
/// several.
class Moment {
 public:
  static constexpr std::uint64_t kAtomic = std::uint64_t{1} << 58;         ///< an atomic operation
  static constexpr std::uint64_t kSeveralLanes = std::uint64_t{1} << 59;   ///< lanes of the warp accessed it, unordered
  static constexpr std::uint64_t kSeveralWarps = std::uint64_t{1} << 60;   ///< warps of the block did in the interval
  static constexpr std::uint64_t kSeveralBlocks = std::uint64_t{1} << 61;  ///< blocks of the launch did

  /// Never.
  Moment() = default;
  Moment(std::uint32_t interval, std::uint16_t warp_epoch, unsigned thread, std::uint64_t marks)
      : bits_(interval | std::uint64_t{warp_epoch} << 32 | std::uint64_t{thread & 1023u} << 48 | marks) {}
  bool operator==(const Moment&) const = default;
  /// 0: never.
  std::uint32_t interval() const { return static_cast<std::uint32_t>(bits_); }
  /// The number of warp barriers of the thread's warp in this block before it.
  std::uint16_t warp_epoch() const { return static_cast<std::uint16_t>(bits_ >> 32); }
  /// The thread of the block, the last one if several accessed.
  unsigned thread() const { return static_cast<unsigned>(bits_ >> 48) & 1023u; }
  bool has(std::uint64_t mark) const { return (bits_ & mark) != 0; }
  void mark(std::uint64_t mark, bool set) { bits_ |= set ? mark : 0; }

 private:
  std::uint64_t bits_ = 0;
};

/// The accesses of all kernels to memory, by byte.
class Memory {
 public:
  /// Begins a launch, a block, or an interval between barriers.
  void begin_launch();
  void begin_block();
  void begin_interval() { ++interval_; }
  /// The addresses of shared memory.
  const Range& shared() const { return shared_; }
  /// Records an access of `bytes` bytes by `thread`; `fresh` becomes the number of those that the launch had not
  /// accessed in this way. Returns false, and what is wrong with it, if it is.
  bool access(std::uintptr_t at, std::size_t bytes, Access kind, unsigned thread, std::uint16_t warp_epoch,
              std::size_t& fresh, std::string& why);

 private:
  struct Byte {
    Moment written, read;
    bool operator==(const Byte&) const = default;
  };
  static constexpr std::size_t kPage = 4096;
  using Page = std::array<Byte, kPage>;

  enum class Wrong : std::uint8_t { nothing, after_write, after_read, unwritten };

  Byte* bytes_from(std::uintptr_t at);
  Wrong access_byte(Byte& b, const Moment& now, Access kind, bool shared);
  std::string message(Wrong wrong, const Byte& b, Access kind, bool shared) const;
  bool unordered(const Moment& before, const Moment& after) const;
  Moment merged(const Moment& before, Moment after) const;

  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::array<std::uintptr_t, 256> cached_key_{};
  std::array<Page*, 256> cached_{};
  Range shared_ = shared_memory();
  std::uint32_t interval_ = 1, block_ = 1, launch_ = 1;
};

}  // namespace fp8::shim
