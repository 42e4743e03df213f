/// Whether the machines of a job see the same folder.
#pragma once

#include <string>

#include "fp8/comm/comm.h"

namespace fp8::comm {

/// Rank 0 writes a file with a random name and content in `folder`, or in the nearest folder above it that exists, and
/// every rank looks for it; the file is removed. Throws AgreedError with Exit::bad that names the host of the lowest
/// rank that does not see it. Does nothing if all ranks are on one host, or rank 0 cannot write there, which is an
/// error of what writes later. Collective.
void check_shared(Communicator& world, const std::string& folder);

}  // namespace fp8::comm
