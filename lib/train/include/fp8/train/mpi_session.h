/// The body of a tool that may run under mpirun: the MPI session, errors of all ranks, and the watchdog. The functions
/// are called by main() only, and print errors and end the job as a main() does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fp8/comm/comm.h"
#include "fp8/json/value.h"

namespace fp8::train {

/// How the ranks of a tool start.
struct Start {
  std::string tool;
  std::int64_t timeout = 0;             ///< seconds, see watch_ranks()
  bool one_job = false;                 ///< whether ranks that MPI lacks are an error, and not a note
  std::optional<std::int64_t> ranks{};  ///< the number of ranks that MPI must have; nothing: the number of the launcher
};

/// Runs `body` on every rank in an MPI session (without mpirun on one rank, without MPI), with watch_ranks();
/// MPI_Init and the first communication may also take `timeout` seconds each. If there is a message of
/// wrong_ranks(), the first process of the job prints it, and with `one_job` the status is Exit::bad and `body` does
/// not run. An AgreedError is printed on rank 0, and its code is the status of all ranks. With several ranks any other
/// error ends the job after one line on standard error; with one rank it is thrown.
int run_ranks(const Start& start, const std::function<int(comm::Communicator&)>& body);

/// What is wrong if MPI has `size` ranks, `wanted` are meant, and the launcher counts its tasks; empty: nothing. A
/// launcher without a PMI that MPI understands starts each of its tasks as a world of one rank.
std::string wrong_ranks(const comm::Launcher& launcher, int size, std::optional<std::int64_t> wanted);

/// Waits on all processes of a job but the first, up to 2 s, so that its message is printed before a launcher ends all
/// of them because one has ended.
void let_first_rank_print();

/// Starts the watchdog of collectives: when a rank is missing in one for `seconds`, a waiting rank names it and ends
/// the job with Exit::no, which a supervisor treats as a crash. 0: no watchdog. Collective.
void watch_ranks(comm::Communicator& host_comm, const std::string& tool, std::int64_t seconds);

/// The processors that this process may use, as a text that is equal for ranks on one machine that may use the same
/// ones. Empty if the system does not state them, so that all such ranks count as sharing theirs.
std::string own_processors();

/// How many ranks may use the same processors as `rank`, itself included. `processors` has own_processors() of each
/// rank.
int ranks_on_processors(const std::vector<std::string>& processors, std::size_t rank);

/// Names and versions of the libraries in use.
std::vector<std::string> library_versions();

}  // namespace fp8::train
