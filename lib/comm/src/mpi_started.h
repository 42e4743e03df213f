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

/// The tag of messages between two ranks. Those of a collective have another one, the same on all ranks and different
/// from that of every collective under way.
inline constexpr int kMessageTag = 0;

/// Calls f(first, count) for the pieces of n elements.
template <class F>
void in_pieces(std::int64_t n, std::int64_t longest, F&& f) {
  for (std::int64_t at = 0; at < n; at += longest) f(at, static_cast<int>(std::min(longest, n - at)));
}

/// See Communicator::start_all_gather(); `offsets` are the prefix sums of bytes_of.
Request mpi_all_gather(const MpiGroup& group, const std::byte* mine, std::byte* all,
                       std::span<const std::int64_t> bytes_of, const std::vector<std::int64_t>& offsets);
/// See Communicator::start_reduce_scatter(); `offsets` are the prefix sums of count_of.
Request mpi_reduce_scatter(const MpiGroup& group, int tag, float* full, float* mine,
                           const std::vector<std::int64_t>& offsets);
/// See Communicator::start_all_reduce().
Request mpi_all_reduce(const MpiGroup& group, int tag, std::span<float> values, Reduce op);
/// See Communicator::start_all_to_all().
Request mpi_all_to_all(const MpiGroup& group, int tag, const std::byte* from, std::byte* to,
                       const ExchangedBlocks& blocks);
/// See Communicator::start_send(); bytes > 0.
Request mpi_send(const MpiGroup& group, const std::byte* from, std::int64_t bytes, int to);
/// See Communicator::start_receive(); bytes > 0.
Request mpi_receive(const MpiGroup& group, std::byte* to, std::int64_t bytes, int from);

}  // namespace fp8::comm
