/// Collectives over MPI on host memory. Private to comm: users hold a Communicator. mpi.h stays in the .cc.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "fp8/comm/comm.h"
#include "fp8/watchdog/progress_table.h"

namespace fp8::comm {

/// MPI counts in int; longer messages travel in pieces of at most this many elements. Tests make it small.
inline constexpr std::int64_t kLongestMessage = std::numeric_limits<int>::max();

/// All ranks of an initialized MPI, its errors returned instead of aborting.
std::unique_ptr<Communicator> mpi_world(std::int64_t longest_message = kLongestMessage);

/// The timeout of the watchdog of a communicator in seconds; 0 if it has none.
double watched_seconds(const Communicator& group);

/// The progress table of a communicator, and the index of its group in the table.
struct GroupProgress {
  std::shared_ptr<watchdog::ProgressTable> progress;  ///< progress table, or null for a communicator without MPI
  std::size_t group = 0;
};
/// The progress of other collectives of the same ranks, such as those of NCCL, which the same watchdog then watches.
GroupProgress group_progress(const Communicator& group);

/// Throws Error `MPI collective: reason` unless `status` is MPI_SUCCESS.
void check_mpi(int status, const std::string& collective);

}  // namespace fp8::comm
