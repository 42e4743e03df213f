/// Targets of the loss.
#pragma once

#include <cstdint>

namespace fp8 {

/// A masked target, which has no loss, as PyTorch's ignore_index.
inline constexpr std::int32_t kIgnoredTarget = -100;

}  // namespace fp8
