/// Index of a type in tables of kernels, which have functions for f32 and bf16. Private to this crate.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

#include "fp8/dtype/dispatch.h"

namespace fp8::optim {

/// 0 for f32, 1 for bf16. Throws Error that begins with `what` for another type.
inline std::size_t type_index(dtype::DType type, const std::string& what) {
  return dtype::with_float_type(type, what, []<class T>() -> std::size_t { return std::is_same_v<T, float> ? 0 : 1; });
}

}  // namespace fp8::optim
