/// Stack allocator for scratch memory. A dry run of a step, which computes nothing, measures the peak by category; then
/// an arena of that size is allocated once and reused by every step, so that no step allocates memory and --dry-run
/// reports the size of the real run. Memory is released in reverse order, by scopes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/device/device.h"

namespace fp8::device {

/// Bytes of one category at the peak of an arena.
struct Usage {
  std::string category;   ///< such as "activations", "gathered weights", "scratch"
  std::size_t bytes = 0;  ///< bytes allocated at the peak
};

/// Stack allocator over one buffer; blocks begin at multiples of 256 bytes.
class Arena {
 public:
  /// A dry arena: returns addresses that must not be accessed and records the peak.
  Arena();
  /// A real arena of `bytes` on `device`.
  Arena(std::size_t bytes, DeviceType device);

  /// Whether the arena is dry.
  bool dry() const { return dry_; }
  /// Allocates `bytes` of uninitialized memory for `category`, at a multiple of 256 bytes from its begin. Throws Error
  /// naming the largest categories when the arena is full.
  std::byte* allocate(std::size_t bytes, std::string_view category);
  /// Current position, for release().
  std::size_t mark() const { return top_; }
  /// Releases all blocks allocated since `mark`. A mark above the current position is ignored.
  void release(std::size_t mark);
  /// Largest number of bytes allocated at once.
  std::size_t peak() const { return peak_; }
  /// Categories at the peak, largest first.
  std::vector<Usage> usage_at_peak() const;

 private:
  struct ArenaBlock {
    std::size_t begin, end;
    std::uint32_t category;
  };
  bool dry_ = true;
  Buffer memory_;
  std::size_t top_ = 0, peak_ = 0;
  std::vector<ArenaBlock> blocks_;
  std::vector<std::string> names_;
  std::vector<std::size_t> held_, held_at_peak_;
};

/// Releases the blocks that were allocated from an arena during its lifetime.
class Scope {
 public:
  /// Stores the arena's position.
  explicit Scope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~Scope() { arena_.release(mark_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Arena& arena_;
  std::size_t mark_;
};

}  // namespace fp8::device
