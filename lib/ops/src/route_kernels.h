/// Loops of route.isa.cc over one row of n elements with unit stride, on one thread. Same bits for every instruction
/// set. Private to this crate.
#pragma once

#include <cstdint>
#include <type_traits>

#include "fp8/base/cpu.h"
#include "fp8/dtype/element.h"

namespace fp8::ops {

/// The sum of some rows of a matrix of T with n columns.
template <class T>
struct RowSum {
  const T* matrix;           ///< first row
  const std::int32_t* rows;  ///< indices of the rows that are added, in this order
  std::int64_t count;        ///< number of these
  const float* weights;      ///< the factor of each, or null for 1
  const float* addend;       ///< values added last, or null
  T* out;                    ///< result, rounded once
};

/// Loops over rows of T.
template <class T>
struct RouteLoops {
  void (*sum)(const RowSum<T>& s, std::int64_t n);  ///< see RowSum
  /// Returns the dot product of d and y, and then sets dy = weight d, rounded; dy may be y.
  float (*weighted)(const T* d, const T* y, float weight, T* dy, std::int64_t n);
};

/// Loops of one instruction set.
struct RouteKernels {
  RouteLoops<float> f32;         ///< over rows of f32
  RouteLoops<dtype::Bf16> bf16;  ///< over rows of bf16
  /// p = softmax of x; returns the logarithm of the sum of the exponentials. All NaN if x has a NaN or +infinity.
  float (*softmax)(const float* x, float* p, std::int64_t n);
  void (*add_to)(const float* x, double* sums, std::int64_t n);  ///< sums += x
  /// The gradient of x from that of p, `d`, or null for 0, less `offset`: out = p (d - offset - sum of p d); returns
  /// offset + sum of p d.
  float (*softmax_gradient)(const float* p, const float* d, float offset, float* out, std::int64_t n);
};
FP8_ISA_TABLES(RouteKernels, kRouteKernels, route_kernels)

/// Loops over rows of T.
template <class T>
const RouteLoops<T>& route_loops(Isa isa = cpu_isa()) {
  if constexpr (std::is_same_v<T, float>)
    return route_kernels(isa).f32;
  else
    return route_kernels(isa).bf16;
}

}  // namespace fp8::ops
