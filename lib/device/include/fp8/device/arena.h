/// Memory of a step: a stack for scratch, and a pool for what is freed in any order, such as the saved activations of
/// several micro-batches. A dry run of a step, which computes nothing, measures the peak by category; then an arena of
/// that size is allocated once and reused by every step, so that no step allocates memory and --dry-run reports the
/// size of the real run. The stack grows from the beginning of the memory and the pool from its end, so that each uses
/// what the other leaves, and the peak is the largest sum of both at one time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8/device/device.h"

namespace fp8::device {

/// Bytes of one category at the peak of an arena.
struct Usage {
  std::string category;   ///< such as "activations", "gathered weights", "scratch"
  std::size_t bytes = 0;  ///< bytes allocated at the peak
};

/// Stack and pool over one buffer; blocks begin at multiples of 256 bytes.
class Arena {
 public:
  /// A dry arena: returns addresses that must not be accessed and records the peak.
  Arena();
  /// A real arena of `bytes` on `device`.
  Arena(std::size_t bytes, DeviceType device);

  /// Whether the arena is dry.
  bool dry() const { return dry_; }
  /// Allocates `bytes` of uninitialized memory for `category` from the stack, at a multiple of 256 bytes from its
  /// begin. Throws Error naming the largest categories when the arena is full.
  std::byte* allocate(std::size_t bytes, std::string_view category);
  /// Current position of the stack, for release().
  std::size_t mark() const { return top_; }
  /// Releases all blocks of the stack allocated since `mark`. A mark above the current position is ignored.
  void release(std::size_t mark);

  /// Allocates like allocate(), but from the pool: in the free range that is nearest to the end of the memory and large
  /// enough. Blocks that are freed in reverse order leave no unused ranges between blocks. Deterministic.
  std::byte* allocate_pooled(std::size_t bytes, std::string_view category);
  /// Frees a block of the pool.
  void free_pooled(std::byte* block);

  /// Largest number of bytes allocated at once, with the unused ranges between blocks of the pool.
  std::size_t peak() const { return peak_; }
  /// Categories at the peak, largest first; "unused in pool": the unused ranges between blocks.
  std::vector<Usage> usage_at_peak() const;

 private:
  struct ArenaBlock {
    std::size_t begin, end;  // the stack counts from the beginning of the memory, the pool backwards from its end
    std::uint32_t category;
  };
  std::size_t limit() const;
  std::byte* base() const;
  std::size_t rounded(std::size_t bytes, std::string_view category) const;
  std::uint32_t count(std::size_t bytes, std::string_view category);
  [[noreturn]] void refuse(std::size_t bytes, std::string_view category) const;

  bool dry_ = true;
  Buffer memory_;
  std::size_t top_ = 0, peak_ = 0;
  std::vector<ArenaBlock> blocks_;            // blocks of the stack
  std::size_t pool_ = 0;                      // end of the last block of the pool
  std::map<std::size_t, ArenaBlock> pooled_;  // by begin
  std::map<std::size_t, std::size_t> free_;   // unused ranges below pool_, begin to end; never adjacent
  std::vector<std::string> names_;
  std::vector<std::size_t> held_, held_at_peak_;
};

/// Releases the blocks that were allocated from the stack of an arena during its lifetime.
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

/// Blocks from the pool of an arena, which are freed together.
class PooledMemory {
 public:
  /// No blocks yet. The arena outlives the object and is not moved.
  explicit PooledMemory(Arena& arena) : arena_(&arena) {}
  ~PooledMemory() { free(); }
  PooledMemory(PooledMemory&& other) noexcept : arena_(other.arena_), blocks_(std::exchange(other.blocks_, {})) {}
  PooledMemory& operator=(PooledMemory&&) = delete;
  /// Another block. Throws Error as Arena::allocate().
  std::byte* allocate(std::size_t bytes, std::string_view category);
  /// Frees all blocks.
  void free();

 private:
  Arena* arena_;
  std::vector<std::byte*> blocks_;
};

}  // namespace fp8::device
