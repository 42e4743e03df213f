// Groups of ranks that do not exist. Private to comm.
#pragma once

#include <memory>
#include <vector>

#include "fp8/comm/comm.h"

namespace fp8::comm {

// The group of `ranks`, in increasing order, as rank `own` of them would have it, on machines with `each` consecutive
// ranks. See Mesh::imagined().
std::shared_ptr<Communicator> imagined_group(const std::vector<int>& ranks, int own, int each);

}  // namespace fp8::comm
