/// The machines of a job.
#pragma once

#include <string>
#include <vector>

#include "fp8/comm/comm.h"

namespace fp8::comm {

/// The name of the machine of each rank, by rank: {"node-1", "node-1", "node-2"}. Machines with the same name cannot be
/// told apart. Collective.
std::vector<std::string> hosts(Communicator& world);

/// Lets messages name the machine of a rank beside its number, if hosts() are several: sets
/// watchdog::ProgressTable::hosts(). `world` has all ranks of the job. Collective.
void name_hosts(Communicator& world);

}  // namespace fp8::comm
