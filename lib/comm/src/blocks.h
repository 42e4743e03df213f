/// Checks of the sizes that collectives with uneven blocks are given. Private to comm.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fp8::comm {

/// Where each rank's block begins, and last the end of all: one more than ranks. Throws Error naming `what` unless
/// there is one non-negative size for each of `ranks`.
std::vector<std::int64_t> offsets_of(std::span<const std::int64_t> sizes, int ranks, const std::string& what);

}  // namespace fp8::comm
