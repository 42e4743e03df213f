/// The name of the machine.
#pragma once

#include <string>

namespace fp8 {

/// The name of this machine as the kernel has it: "node-3". Throws Error if the system does not give one.
std::string host_name();

}  // namespace fp8
