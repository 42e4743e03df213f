/// Counts of the bytes that a rank sends to other ranks of its mesh, by what the ranks are divided along and by the
/// type of the elements. Whoever starts a collective adds what it sends, because a communicator moves bytes and knows
/// neither. A count is the size of the values alone, whatever an implementation adds: an all-gather sends the own block
/// to each other rank, and an all-reduce is a reduce-scatter and an all-gather.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fp8/comm/comm.h"
#include "fp8/dtype/dtype.h"

namespace fp8::comm {

/// What the ranks of a group are divided along: a dimension of the mesh, where experts are sharded along dp_shard; or
/// several dimensions at once.
enum class Along : std::uint8_t { dp_shard, dp_replicate, ep, tp, pp, several };

/// The type of elements that travel. Codes of FP8 travel as u8.
enum class Element : std::uint8_t { f32, bf16, fp8, other };

/// Name in records: dp_shard, ..., several.
std::string_view name_of(Along along);
/// Name in records: f32, bf16, fp8 or other.
std::string_view name_of(Element element);

/// Bytes that were sent.
struct SentBytes {
  static constexpr std::size_t kAlongs = 6, kElements = 4;
  std::array<std::int64_t, kAlongs * kElements> values{};  ///< of(), one after the other

  /// Bytes of one type that were sent along one dimension.
  std::int64_t& of(Along along, Element element) {
    return values[static_cast<std::size_t>(along) * kElements + static_cast<std::size_t>(element)];
  }
  /// The same, of a count that does not change.
  std::int64_t of(Along along, Element element) const { return SentBytes(*this).of(along, element); }
  /// Sum over types and dimensions.
  std::int64_t total() const;
  /// What was sent since the count was `before`.
  SentBytes operator-(const SentBytes& before) const;
};

/// What this rank has sent since it started.
class Traffic {
 public:
  /// The bytes, by dimension and type.
  const SentBytes& sent() const { return sent_; }
  /// Adds bytes of elements of a type.
  void add(Along along, dtype::DType type, std::int64_t bytes);
  /// Adds an all-gather in which this rank's block has `own` bytes.
  void add_gather(Along along, const Communicator& group, dtype::DType type, std::int64_t own) {
    add(along, type, own * (group.size() - 1));
  }
  /// Adds an all-reduce of so many elements, of which each rank reduces an even part.
  void add_all_reduce(Along along, const Communicator& group, dtype::DType type, std::int64_t elements);

 private:
  SentBytes sent_;
};

}  // namespace fp8::comm
