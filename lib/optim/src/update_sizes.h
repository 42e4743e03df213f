/// How the elements of an update are divided among threads on a device. Private to this crate.
#pragma once

#include "adamw_element.h"

namespace fp8::optim {

inline constexpr int kUpdateThreads = 256;  ///< threads of a block
inline constexpr int kAdjacent = 4;         ///< elements that a thread updates at once, each with its random counter
inline constexpr int kUpdateLanes = kNoiseLanes / kAdjacent;  ///< threads of a noise block

}  // namespace fp8::optim
