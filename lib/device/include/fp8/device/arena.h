/// A stack of scratch memory. A step is first run dry (nothing computed) to learn its peak by category; then that much
/// is taken once and every step reuses it, so that no allocation happens inside a step and the plan, --dry-run and the
/// real run agree. Not a general allocator: memory is released in the reverse order, by scopes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/device/device.h"

namespace fp8::device {

/// Bytes by category at the moment of an arena's peak.
struct Usage {
  std::string category;   ///< such as "activations", "gathered weights", "scratch"
  std::size_t bytes = 0;  ///< bytes held by it at the peak
};

/// Stack allocator over one buffer; aligned to 64 bytes.
class Arena {
 public:
  /// A dry arena: hands out addresses that must not be touched and records the peak.
  Arena();
  /// A real arena of `bytes` at `place`.
  Arena(std::size_t bytes, Place place);

  /// Whether memory handed out is not real.
  bool dry() const { return dry_; }
  /// `bytes` of uninitialized memory for `category`. Throws Error naming the largest users when a real arena is full.
  std::byte* take(std::size_t bytes, std::string_view category);
  /// Position to come back to.
  std::size_t mark() const { return top_; }
  /// Releases everything taken since `mark`. A mark above the top is ignored.
  void release(std::size_t mark);
  /// Largest number of bytes ever held.
  std::size_t peak() const { return peak_; }
  /// Categories at the peak, largest first.
  std::vector<Usage> usage_at_peak() const;

 private:
  struct Block {
    std::size_t begin, end;
    std::uint32_t category;
  };
  bool dry_ = true;
  Buffer memory_;
  std::size_t top_ = 0, peak_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::string> names_;
  std::vector<std::size_t> held_, held_at_peak_;
};

/// Releases what was taken from an arena within a C++ scope.
class Scope {
 public:
  /// Notes the arena's position.
  explicit Scope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~Scope() { arena_.release(mark_); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Arena& arena_;
  std::size_t mark_;
};

}  // namespace fp8::device
