/// Resident memory of this process, as the kernel reports it.
#pragma once

#include <cstdint>

namespace fp8 {

/// The resident set of this process in bytes; 0 if the kernel does not report it.
std::int64_t resident_memory();

/// The largest resident set of this process so far in bytes. Where /proc/self/status does not have it, that of the
/// program that started this process counts too.
std::int64_t peak_resident_memory();

}  // namespace fp8
