/// How this crate says no: one line, with the shapes.
#pragma once

#include <string>

#include "fp8/base/error.h"
#include "fp8/tensor/tensor.h"

namespace fp8::gemm {

/// Throws Error "matrix multiply: reason".
[[noreturn]] inline void refuse(const std::string& reason) { throw Error("matrix multiply: " + reason); }

/// "[4, 6]" of a view with two dimensions.
inline std::string shape_of(const tensor::View& v) {
  return std::string("[") + std::to_string(v.shape[0]) + ", " + std::to_string(v.shape[1]) + "]";
}

}  // namespace fp8::gemm
