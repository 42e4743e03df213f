/// Sums whose order does not depend on the width of vectors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fp8::ops {

/// f(0) + ... + f(n - 1) in f32: f(i) is added to lane i % 32, then the upper half of the lanes to the lower, five
/// times. f has no effects.
template <class F>
inline float lane_sum(std::int64_t n, F f) {
  constexpr std::int64_t kLanes = 32;
  std::array<float, kLanes> lane{};
  const std::int64_t whole = n / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
#pragma omp simd
    for (std::int64_t l = 0; l < kLanes; ++l) lane[static_cast<std::size_t>(l)] += f(i + l);
  }
  for (std::int64_t i = whole; i < n; ++i) lane[static_cast<std::size_t>(i - whole)] += f(i);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2)
    for (std::size_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

}  // namespace fp8::ops
