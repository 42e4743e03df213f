/// Comparison of floats by their bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fp8::golden {

/// Whether two floats have the same bits, or are both NaN.
inline bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace fp8::golden
