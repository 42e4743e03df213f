/// Magnitudes of floats on the host, for Reduce::amax. Private to comm.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace fp8::comm {

/// Clears the signs.
inline void clear_signs(std::span<float> values) {
  for (float& v : values) v = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & 0x7FFFFFFFu);
}

/// The larger one of two floats without a sign; NaN counts as the largest. Magnitudes order as their bits do, and those
/// of NaN lie above those of infinity.
inline float larger_magnitude(float a, float b) {
  return std::bit_cast<float>(std::max(std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(b)));
}

}  // namespace fp8::comm
