/// A cache of the ids of words: a table of fixed size in which a new word overwrites an old one. Memory is bounded, and
/// a word needs no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace fp8::token {

/// Stores words of at most 23 bytes and 8 ids; others are not stored.
class WordCache {
 public:
  /// Makes an empty cache of 4 MiB.
  WordCache() : slots_(kSlots) {}

  /// The ids of `word`; empty if it is not stored. Valid until the next store().
  std::span<const std::uint32_t> find(std::string_view word) const {
    if (word.empty() || word.size() > kBytes) return {};
    const Slot& slot = slots_[place(word)];
    if (slot.length != word.size() || std::memcmp(slot.bytes.data(), word.data(), word.size()) != 0) return {};
    return {slot.ids.data(), slot.count};
  }
  /// Stores `ids` for `word` if both fit.
  void store(std::string_view word, std::span<const std::uint32_t> ids) {
    if (word.empty() || word.size() > kBytes || ids.empty() || ids.size() > kIds) return;
    Slot& slot = slots_[place(word)];
    std::memcpy(slot.bytes.data(), word.data(), word.size());
    std::memcpy(slot.ids.data(), ids.data(), ids.size_bytes());
    slot.length = static_cast<std::uint8_t>(word.size());
    slot.count = static_cast<std::uint8_t>(ids.size());
  }

 private:
  static constexpr std::size_t kBytes = 23, kIds = 8, kSlots = std::size_t{1} << 16U;
  struct alignas(64) Slot {  // one cache line
    std::array<std::uint32_t, kIds> ids;
    std::array<char, kBytes> bytes;
    std::uint8_t length;
    std::uint8_t count;
  };
  static std::size_t place(std::string_view word) {
    std::uint64_t hash = word.size();
    std::size_t at = 0;
    for (; at < word.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t piece = 0;
      std::memcpy(&piece, word.data() + at, std::min(sizeof piece, word.size() - at));
      hash = (hash ^ piece) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32U;
    }
    return hash % kSlots;
  }
  std::vector<Slot> slots_;
};

}  // namespace fp8::token
