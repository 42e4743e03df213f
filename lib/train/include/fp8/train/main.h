/// What the mains of the tools that call MPI share: the session around the work, errors that all ranks agree on, and one voice.
#pragma once

#include <functional>
#include <string>

#include "fp8/comm/comm.h"

namespace fp8::train {

/// Runs `body` on every rank inside an MPI session (one rank without mpirun: no MPI). An error that all ranks share is thrown on rank 0 and is
/// the status of the others; any other ends the job after one line on standard error.
int run_ranks(const std::string& tool, const std::function<int(comm::Communicator&)>& body);

/// Versions of the libraries for --version.
std::vector<std::string> library_versions();

}  // namespace fp8::train
