/// Collectives and messages over MPI that are started, and go on in wait() and test(). Private to comm.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "blocks.h"
#include "fp8/comm/comm.h"
#include "mpi_c.h"
#include "mpi_communicator.h"

namespace fp8::comm {

/// The ranks of a communicator of MPI, and what their collectives share.
struct MpiGroup {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::int64_t longest = kLongestMessage;
  GroupProgress place;
  /// Memory that collectives borrow in turn: allocated once, not in every step.
  std::shared_ptr<std::vector<std::vector<float>>> pool;
};

/// The tag of messages between two ranks. Messages of a collective have another tag, the same on all ranks and
/// different from the tag of every collective under way.
inline constexpr int kMessageTag = 0;

/// Calls f(first, count) for the pieces of n elements.
template <class F>
void in_pieces(std::int64_t n, std::int64_t longest, F&& f) {
  for (std::int64_t at = 0; at < n; at += longest) f(at, static_cast<int>(std::min(longest, n - at)));
}

/// One of Communicator::start_all_gathers(); `offsets` are the prefix sums of bytes_of.
Request mpi_all_gather(const MpiGroup& group, const GatheredTensor& tensor, const std::vector<std::int64_t>& offsets);
/// One of Communicator::start_reduce_scatters(); `offsets` are the prefix sums of count_of.
Request mpi_reduce_scatter(const MpiGroup& group, int tag, const ScatteredTensor& tensor,
                           const std::vector<std::int64_t>& offsets);
/// One of Communicator::start_all_reduces().
Request mpi_all_reduce(const MpiGroup& group, int tag, std::span<float> values, Reduce op);
/// See Communicator::start_all_to_all().
Request mpi_all_to_all(const MpiGroup& group, int tag, const std::byte* from, std::byte* to,
                       const ExchangedBlocks& blocks);
/// One of Communicator::start_messages(); bytes > 0.
Request mpi_send(const MpiGroup& group, const SentMessage& message);
/// The same.
Request mpi_receive(const MpiGroup& group, const ReceivedMessage& message);

}  // namespace fp8::comm
