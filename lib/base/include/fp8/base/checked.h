/// Integer arithmetic that throws instead of wrapping: sizes read from files, shapes, byte counts.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "fp8/base/error.h"

namespace fp8 {

/// a + b; throws Error naming `what` on overflow.
template <std::integral T>
T checked_add(T a, T b, const std::string& what = "size") {
  T r;
  if (__builtin_add_overflow(a, b, &r)) throw Error(what + ": too large");
  return r;
}

/// a * b; throws Error naming `what` on overflow.
template <std::integral T>
T checked_mul(T a, T b, const std::string& what = "size") {
  T r;
  if (__builtin_mul_overflow(a, b, &r)) throw Error(what + ": too large");
  return r;
}

/// `v` as type To; throws Error naming `what` when it does not fit.
template <std::integral To, std::integral From>
To checked_cast(From v, const std::string& what = "number") {
  if (!std::in_range<To>(v)) throw Error(what + ": out of range");
  return static_cast<To>(v);
}

/// Product of all extents (1 for a scalar); throws Error naming `what` on overflow or a negative extent.
inline std::int64_t checked_product(std::span<const std::int64_t> shape, const std::string& what = "shape") {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) {
    if (d < 0) throw Error(what + ": negative extent");
    n = checked_mul(n, d, what);
  }
  return n;
}

}  // namespace fp8
