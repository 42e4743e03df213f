/// Integer division and rounding upwards, of non-negative numbers, on hosts and in kernels.
#pragma once

#include <concepts>
#include <type_traits>

namespace fp8 {

/// ceil(n / size).
template <std::integral T>
constexpr T divide_up(T n, std::type_identity_t<T> size) {
  return (n + size - 1) / size;
}

/// The smallest multiple of `size` that is not less than n.
template <std::integral T>
constexpr T round_up(T n, std::type_identity_t<T> size) {
  return divide_up(n, size) * size;
}

}  // namespace fp8
