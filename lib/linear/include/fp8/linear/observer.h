/// Interface through which the FP8 GEMMs of linear layers are observed: the operands before and after their casts.
/// Without an observer, or while it is not active, a layer does nothing more than to compare a pointer.
#pragma once

#include "fp8/linear/linear.h"

namespace fp8::linear {

/// A GEMM of one FP8 part that has run. The views and operands are valid during the call.
struct ObservedGemm {
  gemm::GemmRole role;         ///< forward, dgrad or wgrad
  const Operand& weight;       ///< the part, with its number; the second operand of forward and dgrad
  const quant::Quantized& a;   ///< x of forward; dy of dgrad and wgrad
  View a_source;               ///< the matrix from which `a` was cast
  const quant::Quantized& b;   ///< the weight, or x of wgrad
  View b_source;               ///< the matrix from which `b` was cast; empty if it is not known
  View exact;                  ///< the first operand in high precision: a_source unless scales were folded into that
  View result;                 ///< the product; empty if something was added to it, as to accumulated gradients
  bool repeats_input = false;  ///< x is the input of the GEMM observed before
};

/// Receives every FP8 GEMM of the layers whose LinearPrecision names it, in the order of computation, except those of
/// forward passes that are recomputed for backward. One thread calls it. In a dry context it is called too, so that
/// the memory which it allocates from the arena is planned.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Whether anything is observed now; otherwise no other function is called.
  virtual bool active() const = 0;
  /// A GEMM that has run; `call` is that of the layer.
  virtual void observe(const Call& call, const ObservedGemm& gemm) = 0;
};

/// Computes the product of an observed GEMM again, without bias: `product` has the shape of its result, in f32 or, of
/// forward, the activations' type. `call` may have another engine.
void multiply_again(const Call& call, const ObservedGemm& gemm, const View& product);

/// The observer of the FP8 GEMMs now; null if there is none.
inline Observer* active_observer(const LinearPrecision& precision) {
  return precision.observer != nullptr && precision.observer->active() ? precision.observer : nullptr;
}

}  // namespace fp8::linear
