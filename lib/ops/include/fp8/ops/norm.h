/// RMSNorm, alone or after a residual addition. Statistics in f32; the normalized value is rounded to the activation
/// type before the weight multiplies it, as transformers does: y = weight * round(x * rsqrt(mean(x^2) + eps)).
/// Activations and weights are all f32 or all bf16. x and y have two dimensions
/// [M, C], or three [M, H, C] with unit last stride (heads of a fused projection, normalized separately), on the
/// context's device; a GPU sums in another order, which may change the last bit.
#pragma once

#include "fp8/ops/amax.h"
#include "fp8/tensor/tensor.h"

namespace fp8::ops {

using device::Context;
using tensor::View;

/// y = norm(x); rstd f32 [M] or [M, H] is needed by the backward pass. y may be x; on a device it may be empty, where
/// rmsnorm_codes() (codes.h) follows.
/// `amax` f32 [1]: of y.
void rmsnorm_forward(const Context& ctx, const View& x, const View& weight, float eps, const View& y, const View& rstd,
                     const Amax& amax = {});

/// Operands and results of add_rmsnorm_forward(); x, delta, sum and y have the same shape and type.
struct AddNorm {
  View x, delta;  ///< addends
  View weight;    ///< [C]
  float eps;      ///< added to the mean square
  View sum;       ///< result: x + delta, rounded; may be x or delta
  View y;         ///< result: norm(sum); may be empty on a device
  View rstd;      ///< result f32 [M] or [M, H]: 1 / sqrt(mean square + eps), for the backward pass
  Amax amax{};    ///< result f32 [1]: amax of y
};

/// sum = x + delta rounded to the activation type; y = norm(sum).
void add_rmsnorm_forward(const Context& ctx, const AddNorm& norm);

/// Operands and results of rmsnorm_backward(); dy, x, upstream and dx have the same shape and type.
struct NormGradient {
  View dy;          ///< gradient of the norm's result
  View x;           ///< input of the norm
  View weight;      ///< [C]
  View rstd;        ///< f32 [M] or [M, H], from the forward pass
  View upstream{};  ///< gradient of the residual connection; empty: none
  View dx;          ///< result: gradient of x; may be dy or upstream
  View dweight{};   ///< f32 [C], to which the gradient of the weight is added; empty: not wanted
  Amax amax{};      ///< result f32 [1]: amax of dx
};

/// dx = upstream + dy d norm / dx; dweight += the gradient of the weight. Deterministic.
void rmsnorm_backward(const Context& ctx, const NormGradient& norm);

/// out = a + b, rounded once; contiguous or equal strides; out may be a or b.
void add(const Context& ctx, const View& a, const View& b, const View& out);

/// out f32 [n] = terms[0] + terms[1] + ... of bf16 terms [T, n], T > 0, added in f32 in this order; contiguous.
void sum_terms(const Context& ctx, const View& terms, const View& out);

/// out [m, C] = terms[0] + terms[1] + ... + bias of terms [T, m, C], T > 0, added in f32 in this order and rounded
/// once; bias [C] or empty. All of one type, f32 or bf16, contiguous.
void sum_partials(const Context& ctx, const View& terms, const View& bias, const View& out);

/// out = in, converted between f32 and bf16 (round to nearest even) by the types of the views; sizes must be equal;
/// two-dimensional views may be strided.
void copy(const Context& ctx, const View& in, const View& out);

/// Sets all bytes of a contiguous view to zero, on all threads.
void zero(const Context& ctx, const View& x);

}  // namespace fp8::ops
