// Prefix sums of block sizes, checked, and the sizes of messages.
#include "blocks.h"

#include "fp8/base/checked.h"

namespace fp8::comm {

std::vector<std::int64_t> offsets_of(std::span<const std::int64_t> sizes, int ranks, const std::string& what) {
  if (!std::cmp_equal(sizes.size(), ranks)) throw Error(what + ": needs one block size for each rank");
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t size : sizes) {
    if (size < 0) throw Error(what + ": negative block size");
    offsets.push_back(checked_add(offsets.back(), size, what));
  }
  return offsets;
}

ExchangedBlocks exchanged_blocks(std::span<const std::int64_t> bytes_to, std::span<const std::int64_t> bytes_from,
                                 int rank, int ranks) {
  ExchangedBlocks blocks{offsets_of(bytes_to, ranks, "all-to-all"), offsets_of(bytes_from, ranks, "all-to-all")};
  const auto own = static_cast<std::size_t>(rank);
  if (bytes_to[own] != bytes_from[own]) throw Error("all-to-all: two sizes for the own block");
  return blocks;
}

void check_messages(std::span<const SentMessage> sent, std::span<const ReceivedMessage> received, int rank, int ranks) {
  const auto check = [&](std::int64_t bytes, int peer, const std::string& what) {
    if (peer < 0 || peer >= ranks) throw Error(what + ": no rank " + std::to_string(peer));
    if (peer == rank) throw Error(what + ": rank " + std::to_string(peer) + " is this rank itself");
    if (bytes < 0) throw Error(what + ": negative size");
  };
  for (const SentMessage& m : sent) check(m.bytes, m.to, "send");
  for (const ReceivedMessage& m : received) check(m.bytes, m.from, "receive");
}

}  // namespace fp8::comm
