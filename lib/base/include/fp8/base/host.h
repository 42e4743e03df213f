/// The names of the machine and of its processor.
#pragma once

#include <string>

namespace fp8 {

/// The name of this machine as the kernel has it: "node-3". Throws Error if the system does not give one.
std::string host_name();

/// The model of the first processor in /proc/cpuinfo: "AMD EPYC 9654 96-Core Processor"; "unknown" if it has none.
std::string processor_name();

}  // namespace fp8
