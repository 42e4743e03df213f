/// Checks of the sizes and ranks that collectives with uneven blocks and messages are given. Private to comm.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8/comm/comm.h"

namespace fp8::comm {

/// Where each rank's block begins, and last the end of all: one more than ranks. Throws Error naming `what` unless
/// there is one non-negative size for each of `ranks`.
std::vector<std::int64_t> offsets_of(std::span<const std::int64_t> sizes, int ranks, const std::string& what);

/// The blocks of an all-to-all, as offsets_of().
struct ExchangedBlocks {
  std::vector<std::int64_t> sent, received;
};

/// The blocks that `rank` sends and receives, see Communicator::start_all_to_all(). Throws Error unless there are sizes
/// for each of `ranks`, and the own block has the same size in both.
ExchangedBlocks exchanged_blocks(std::span<const std::int64_t> bytes_to, std::span<const std::int64_t> bytes_from,
                                 int rank, int ranks);

/// Throws Error unless `rank` may start these messages: each has a size, and goes to or comes from another one of
/// `ranks`.
void check_messages(std::span<const SentMessage> sent, std::span<const ReceivedMessage> received, int rank, int ranks);

}  // namespace fp8::comm
