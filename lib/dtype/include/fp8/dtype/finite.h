/// Checks arrays for non-finite and negative elements.
#pragma once

#include <cstddef>
#include <span>

#include "fp8/dtype/dtype.h"

namespace fp8::dtype {

/// Whether every element of format `type` at `bytes` (host memory, any alignment) is finite and, with `unsigned_only`,
/// has no sign bit, that is, is >= 0. Always true for integers; e8m0 has one NaN and no sign. One vectorized pass.
/// Throws Error if the bytes are not a whole number of elements.
bool all_finite(DType type, std::span<const std::byte> bytes, bool unsigned_only = false);

}  // namespace fp8::dtype
