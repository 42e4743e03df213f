/// What the mains of the tools that call MPI share: the session around the work, errors that all ranks agree on, and
/// one voice.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fp8/comm/comm.h"
#include "fp8/json/value.h"

namespace fp8::train {

/// Runs `body` on every rank inside an MPI session (one rank without mpirun: no MPI), under watch_ranks() with
/// `timeout` seconds; until that begins, MPI_Init and what ranks exchange first may take as long, each. An error that
/// all ranks share is thrown on rank 0 and is the status of the others; any other ends the job after one line on
/// standard error.
int run_ranks(const std::string& tool, std::int64_t timeout, const std::function<int(comm::Communicator&)>& body);

/// Watches the collectives of all ranks from here on: when one is missing for `seconds`, one of those that wait names
/// it and ends the job, with a status that a supervisor takes for a crash. 0: nothing is watched. Collective.
void watch_ranks(comm::Communicator& world, const std::string& tool, std::int64_t seconds);

/// Throws AgreedError unless all ranks were started with the same flags, as cli::resolved() gives them, and the same
/// MODEL, since all take rank 0's. Other paths may differ: what lies there is compared by the run. Collective.
void check_same_flags(comm::Communicator& world, json::Value flags, const std::string& model);

/// Versions of the libraries for --version.
std::vector<std::string> library_versions();

}  // namespace fp8::train
