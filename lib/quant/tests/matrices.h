/// Matrices with various strides for the tests of this crate.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/quant/quantize.h"
#include "fp8_test.h"

namespace fp8::quant {

using test::error_of;

inline constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

/// An element of an f32 or bf16 matrix in host memory.
inline float element(const View& v, std::int64_t r, std::int64_t c) {
  const std::int64_t at = r * v.stride[0] + c * v.stride[1];
  return v.dtype == dtype::DType::f32 ? v.as<float>()[at] : dtype::to_float(v.as<dtype::Bf16>()[at]);
}

/// A small reproducible generator.
class Numbers {
 public:
  /// A value of either sign and magnitude 2^-12 to 2^4; one in 64 is zero.
  float next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const auto r = static_cast<std::uint32_t>(state_ >> 32);
    if (r % 64 == 0) return 0.0f;
    const float v =
        std::ldexp(1.0f + static_cast<float>(r >> 8 & 0xFFFFu) * 0x1p-16f, static_cast<int>(r >> 24 & 15u) - 12);
    return r >> 31 ? -v : v;
  }

 private:
  std::uint64_t state_ = 1;
};

/// Layout of a test matrix.
enum class Layout : std::uint8_t { contiguous, strided_rows, columns_first };

/// One cast of a matrix.
struct Case {
  dtype::DType type;         ///< type of the matrix
  Cast cast;                 ///< format and granularity
  ContractionAxis contract;  ///< dimension that is contracted
  Layout layout;             ///< strides of the matrix
};

/// A [rows, cols] matrix of f32 or bf16 filled with values, with access by index in any layout.
class Matrix {
 public:
  Matrix(dtype::DType type, std::int64_t rows, std::int64_t cols, Layout layout = Layout::contiguous) {
    const std::int64_t gap = layout == Layout::strided_rows ? 5 : 0;
    const bool swapped = layout == Layout::columns_first;
    memory_ = swapped ? tensor::Tensor(type, {cols, rows}) : tensor::Tensor(type, {rows, cols + gap});
    view = swapped ? memory_.view().transposed() : memory_.view().columns(0, cols);
    Numbers numbers;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) set(r, c, numbers.next());
  }
  /// Element (r, c).
  float at(std::int64_t r, std::int64_t c) const {
    const std::int64_t i = r * view.stride[0] + c * view.stride[1];
    return view.dtype == dtype::DType::f32 ? view.as<float>()[i] : dtype::to_float(view.as<dtype::Bf16>()[i]);
  }
  /// Sets element (r, c) to v, rounded to the type of the matrix.
  void set(std::int64_t r, std::int64_t c, float v) {
    const std::int64_t i = r * view.stride[0] + c * view.stride[1];
    if (view.dtype == dtype::DType::f32)
      view.as<float>()[i] = v;
    else
      view.as<dtype::Bf16>()[i] = dtype::to_bf16(v);
  }

  tensor::View view;  ///< the matrix

 private:
  tensor::Tensor memory_;
};

/// A host context with an arena.
class Host {
 public:
  Host() : arena_(std::size_t{1} << 22, device::DeviceType::host) { context.arena = &arena_; }
  Context context;  ///< context of the host, with the arena

 private:
  device::Arena arena_;
};

/// Whether two floats have the same bits, or are both NaN.
inline bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace fp8::quant
