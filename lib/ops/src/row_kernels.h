/// Loops of rows.isa.cc over one row of n elements with unit stride, on one thread. Results may overwrite operands.
/// Same bits for every instruction set. Private to this crate.
#pragma once

#include <cstdint>
#include <type_traits>

#include "fp8/base/cpu.h"
#include "fp8/dtype/element.h"

namespace fp8::ops {

/// The backward of RMSNorm over one row.
template <class T>
struct NormGradientRow {
  const T* dy;        ///< gradient of the result
  const T* x;         ///< input of the norm
  const T* weight;    ///< weight of the norm
  const T* upstream;  ///< values that are added to dx, or null
  T* dx;              ///< result; may be dy or upstream
  float* dweight;     ///< gradient of the weight, to which that of the row is added, or null if it is not wanted
  float rstd;         ///< reciprocal standard deviation of the row
};

/// Loops over rows of T.
template <class T>
struct RowLoops {
  using Bf16 = dtype::Bf16;
  void (*to_f32)(const T* x, float* out, std::int64_t n);       ///< out = x
  void (*to_bf16)(const T* x, Bf16* out, std::int64_t n);       ///< out = x, rounded to nearest even
  void (*add)(const T* a, const T* b, T* out, std::int64_t n);  ///< out = a + b
  void (*add_to)(const T* x, float* sums, std::int64_t n);      ///< sums += x
  /// Bits of the largest magnitude of x, those above `limit` left out.
  std::uint32_t (*largest)(const T* x, std::int64_t n, std::uint32_t limit);
  void (*swiglu)(const T* gate, const T* up, T* out, std::int64_t n);  ///< out = silu(gate) up
  /// The gradients of gate and up, given that of swiglu's result.
  void (*swiglu_gradients)(const T* d, const T* gate, const T* up, T* d_gate, T* d_up, std::int64_t n);
  /// Rotates the pairs (x[i], x[half + i]) of each head by angles of these cosines and sign times these sines; heads
  /// begin every `stride` elements.
  void (*rotate)(T* x, std::int64_t heads, std::int64_t stride, const float* cos, const float* sin, float sign,
                 std::int64_t half);
  /// y = weight * x / rms(x); returns 1 / rms(x).
  float (*norm)(const T* x, const T* weight, float eps, T* y, std::int64_t n);
  void (*norm_gradient)(const NormGradientRow<T>& row, std::int64_t n);  ///< see NormGradientRow
  /// Loss of one row of logits; with `backward` x becomes its gradient times `scale`.
  float (*cross_entropy)(T* x, std::int64_t n, std::int32_t target, float scale, bool backward);
  float (*largest_logit)(const T* x, std::int64_t n);
  double (*sum_of_exp)(const T* x, std::int64_t n, float shift);  ///< of exp(x - shift)
  /// x becomes exp(x - shift) times factor.
  void (*logit_gradients)(T* x, std::int64_t n, float shift, float factor);
};

/// Loops of one instruction set.
struct RowKernels {
  RowLoops<float> f32;         ///< over rows of f32
  RowLoops<dtype::Bf16> bf16;  ///< over rows of bf16
};
FP8_ISA_TABLES(RowKernels, kRowKernels, row_kernels)

/// Loops over rows of T.
template <class T>
const RowLoops<T>& row_loops(Isa isa = cpu_isa()) {
  if constexpr (std::is_same_v<T, float>)
    return row_kernels(isa).f32;
  else
    return row_kernels(isa).bf16;
}

}  // namespace fp8::ops
