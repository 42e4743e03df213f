/// Loops that only read memory, for the rate that bounds a pass over weights. Several, since which one is fastest
/// depends on the processor.
#pragma once

#include <array>
#include <cstdint>

#include "fp8/base/cpu.h"

namespace fp8::gemm {

/// The loops of read_loops.isa.cc for one instruction set, on one thread.
struct ReadKernels {
  static constexpr std::int64_t kBlock = 1024;  ///< divides the number of bytes
  static constexpr std::int64_t kAhead = 4096;  ///< bytes that a loop may prefetch past the end
  /// The sum of the words, so that no read is left out. `data` is aligned to 64 bytes.
  using Read = std::uint64_t (*)(const std::uint64_t* data, std::int64_t bytes);
  std::array<Read, 5> loops;  ///< in one stream and in four, prefetched 0, 1024 and 4096 bytes ahead
};
FP8_ISA_TABLES(ReadKernels, kReadKernels, read_kernels)

}  // namespace fp8::gemm
