/// Checks arrays for non-finite and negative elements, and scales for what FP8 codes can be multiplied by.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fp8/dtype/dtype.h"

namespace fp8::dtype {

/// Whether every element of format `type` at `bytes` (host memory, any alignment) is finite and, with `unsigned_only`,
/// has no sign bit, that is, is >= 0. Always true for integers; e8m0 has one NaN and no sign. One vectorized pass.
/// Throws Error if the bytes are not a whole number of elements.
bool all_finite(DType type, std::span<const std::byte> bytes, bool unsigned_only = false);

/// The defect of the first of `scales` by which codes of format `codes` cannot be multiplied: "scale at index 3 is
/// nan", or 0, negative, infinite, or so large that the product with half of the largest code is not finite as bf16,
/// which no finite weight has: a scale that is rounded up to a power of two is at most twice amax by the largest code.
/// Empty if all are good; a product with a larger code may still be infinite. Scales of e2m1, which are E4M3, may be 0.
std::string bad_scale(std::span<const float> scales, DType codes);

}  // namespace fp8::dtype
