/// Times all-reduces between ranks, over MPI and over NCCL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/comm/comm.h"
#include "fp8/probe/job.h"

namespace fp8::probe {

/// Times a small and a large all-reduce over MPI between one rank of each host, or all ranks of the only host, whose
/// size is what takes a tenth of a second, within limits. The other ranks wait. The results are the same on all ranks.
///   hosts  name of each rank's host
/// Collective.
std::vector<AllReduce> time_host_all_reduces(comm::Communicator& world, const std::vector<std::string>& hosts);

/// The same over NCCL between all ranks, each of which has a GPU of its own. Collective.
std::vector<AllReduce> time_gpu_all_reduces(comm::Communicator& world, int local_rank);

}  // namespace fp8::probe
