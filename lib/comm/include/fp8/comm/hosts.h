/// The machines of a job.
#pragma once

#include <string>
#include <vector>

#include "fp8/comm/comm.h"

namespace fp8::comm {

/// The name of the machine of each rank, by rank: {"node-1", "node-1", "node-2"}. Machines with the same name cannot be
/// told apart. Collective.
std::vector<std::string> hosts(Communicator& world);

}  // namespace fp8::comm
