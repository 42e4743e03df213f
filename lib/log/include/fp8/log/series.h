/// Series of values, one per step, that spill to a temporary file beyond a memory limit. Not thread-safe, not even for
/// reading: a series caches the block that was read last.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fp8/base/file.h"

namespace fp8::log {

/// Number of values in a block of a series.
inline constexpr std::size_t kBlock = 2048;

/// Block store: blocks of 64-bit words, in memory up to a limit, then in an unnamed temporary file.
class BlockStore {
 public:
  /// `memory`: bytes of blocks to keep in memory.
  explicit BlockStore(std::size_t memory) : memory_(memory) {}
  /// Stores a block of kBlock words; returns its index. Throws Error when the temporary file cannot be created or
  /// written.
  std::size_t put(std::span<const std::uint64_t> block);
  /// Reads the block with the index that put() returned. Throws Error when the temporary file cannot be read.
  void get(std::size_t place, std::span<std::uint64_t> block) const;
  /// Releases a block; put() may reuse its index.
  void free(std::size_t place);

 private:
  std::size_t memory_;
  std::vector<std::vector<std::uint64_t>> kept_;
  std::vector<std::size_t> free_;
  std::size_t filed_ = 0;  // number of blocks in the file
  File file_;
};

/// Sequence of 64-bit words that supports appending and truncation; the part of Series that does not depend on the
/// type. A block with a constant stride, such as step numbers, is not stored.
class Words {
 public:
  /// An empty sequence whose blocks are stored in `store`.
  explicit Words(std::shared_ptr<BlockStore> store);
  /// Number of words.
  std::size_t size() const { return blocks_.size() * kBlock + tail_.size(); }
  /// Word `i`, below size(). Fast for sequential access.
  std::uint64_t at(std::size_t i) const {
    const std::size_t block = i / kBlock;
    if (block == blocks_.size()) return tail_[i % kBlock];
    if (block != cached_) load(block);
    return cache_[i % kBlock];
  }
  /// Appends a word.
  void push(std::uint64_t word) {
    tail_.push_back(word);
    if (tail_.size() == kBlock) store_tail();
  }
  /// Truncates to the first `n` words.
  void cut(std::size_t n);

 private:
  struct StoredBlock {
    bool even;            // words are first, first + stride, ...
    std::uint64_t first;  // or the index in the block store
    std::uint64_t stride;
  };
  void load(std::size_t block) const;
  void store_tail();

  std::shared_ptr<BlockStore> store_;
  std::vector<StoredBlock> blocks_;
  std::vector<std::uint64_t> tail_;
  mutable std::vector<std::uint64_t> cache_;
  mutable std::size_t cached_ = static_cast<std::size_t>(-1);
};

/// A series of doubles or of 64-bit integers. Movable, not copyable.
template <typename T>
class Series {
 public:
  /// An empty series whose blocks are stored in `store`.
  explicit Series(std::shared_ptr<BlockStore> store) : words_(std::move(store)) {}
  Series(Series&&) noexcept = default;
  Series& operator=(Series&&) noexcept = default;
  Series(const Series&) = delete;
  Series& operator=(const Series&) = delete;
  ~Series() = default;

  /// Number of values.
  std::size_t size() const { return words_.size(); }
  /// Whether size() is 0.
  bool empty() const { return size() == 0; }
  /// Value `i`, below size(). Fast for sequential access. Throws Error when the temporary file cannot be read.
  T operator[](std::size_t i) const { return std::bit_cast<T>(words_.at(i)); }
  /// The first value of a series that is not empty.
  T front() const { return (*this)[0]; }
  /// The last value of a series that is not empty.
  T back() const { return (*this)[size() - 1]; }
  /// Appends a value. Throws Error when the temporary file cannot be written.
  void push_back(T value) { words_.push(std::bit_cast<std::uint64_t>(value)); }
  /// Appends `n` times the same value.
  void append(std::size_t n, T value) {
    for (; n > 0; --n) push_back(value);
  }
  /// Appends values.
  void append(std::span<const T> values) {
    for (const T v : values) push_back(v);
  }
  /// Truncates to the first `n` values.
  void cut(std::size_t n) { words_.cut(n); }
  /// Index of the first value that is not below `value`; the values must increase.
  std::size_t lower_bound(T value) const {
    std::size_t low = 0, high = size();
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if ((*this)[middle] < value) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  /// A copy of all values in memory.
  std::vector<T> values() const {
    std::vector<T> all;
    for (std::size_t i = 0; i < size(); ++i) all.push_back((*this)[i]);
    return all;
  }

 private:
  static_assert(sizeof(T) == sizeof(std::uint64_t));
  Words words_;
};

}  // namespace fp8::log
