/// How the elements of an update are divided among threads on a device. Private to this crate.
#pragma once

#include "adamw_element.h"
#include "fp8/base/round.h"

namespace fp8::optim {

inline constexpr int kUpdateThreads = 256;  ///< threads of a block
inline constexpr int kAdjacent = 4;         ///< elements that a thread updates at once, each with its random counter
inline constexpr int kUpdateLanes = kNoiseLanes / kAdjacent;  ///< threads of a noise block

inline constexpr std::int64_t kSumPiece = 1 << 15;  ///< elements that a block of threads, or a thread of the host, sums

/// Partial sums of n elements.
constexpr std::int64_t pieces_to_sum(std::int64_t n) { return divide_up(n, kSumPiece); }

}  // namespace fp8::optim
