/// One request for several. Private to comm.
#pragma once

#include <vector>

#include "fp8/comm/comm.h"

namespace fp8::comm {

/// A request for collectives or messages that were started one after the other.
Request together(std::vector<Request> parts);

}  // namespace fp8::comm
