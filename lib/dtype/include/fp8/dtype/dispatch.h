/// Calls templates with the C++ type of a number format.
#pragma once

#include <string>
#include <string_view>

#include "fp8/base/error.h"
#include "fp8/dtype/dtype.h"
#include "fp8/dtype/element.h"

namespace fp8::dtype {

/// Returns f.template operator()<T>() with T = float or Bf16. Throws Error "`what`: ..." for another format.
template <class F>
auto with_float_type(DType type, std::string_view what, F&& f) {
  if (type == DType::f32) return f.template operator()<float>();
  if (type == DType::bf16) return f.template operator()<Bf16>();
  throw Error(std::string(what) + ": expected float32 or bfloat16, not " + std::string(name_of(type)));
}

/// Returns f.template operator()<Grid>() with the grid of an FP8 format. Throws Error for another format.
template <class F>
auto with_fp8_grid(DType format, F&& f) {
  if (format == DType::e4m3) return f.template operator()<E4m3Grid>();
  if (format == DType::e5m2) return f.template operator()<E5m2Grid>();
  throw Error(std::string(name_of(format)) + ": not an FP8 format");
}

}  // namespace fp8::dtype
