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
/// all blocks and launches are numbered in order of execution.
struct Moment {
  std::uint32_t interval = 0;            ///< 0: never
  std::uint16_t warp_epoch = 0;          ///< number of warp barriers of the thread's warp in this block before it
  std::uint16_t thread : 10 = 0;         ///< thread of the block, the last one if several accessed
  std::uint16_t atomic : 1 = 0;          ///< an atomic operation
  std::uint16_t several_lanes : 1 = 0;   ///< lanes of the warp accessed it, unordered
  std::uint16_t several_warps : 1 = 0;   ///< warps of the block accessed it in the interval
  std::uint16_t several_blocks : 1 = 0;  ///< blocks of the launch accessed it
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
