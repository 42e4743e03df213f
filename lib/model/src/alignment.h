// What the extents of FP8 operands have in common. Private to the crate.
#pragma once

#include <cstdint>

namespace fp8::model {

// Divisor of both extents of an FP8 operand.
inline constexpr std::int64_t kAlignment = 16;

}  // namespace fp8::model
