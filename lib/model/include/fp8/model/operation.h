/// Interface through which the results of a decoder's operations are observed, one after the other. Without an observer
/// the decoder does nothing more than to compare a pointer. FP8 GEMMs are observed below, in linear.
#pragma once

#include <string>
#include <string_view>

#include "fp8/device/device.h"
#include "fp8/tensor/tensor.h"

namespace fp8::model {

/// An operation whose result is complete.
struct Operation {
  bool backward = false;       ///< the result is the gradient of the operation's input, else its output
  int unit = 0;                ///< 0 embedding, 1..L layers, L+1 final norm and head
  std::string_view name = {};  ///< within its unit: self_attn.q_proj, mlp.swiglu
};

/// The full name of an operation in a model with `layers` layers: model.layers.0.self_attn.q_proj, model.norm, lm_head.
std::string full_name(const Operation& operation, int layers);

/// Receives the results of all operations of forward and backward in the order in which they ran, except those that are
/// recomputed for backward. Norms that follow a sum come after it. The LM head and the loss run block by block: their
/// results arrive in several pieces, those of forward and backward in turn. Gradients of weights are not among the
/// results; ParameterAccess has them. One thread calls it.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;
  /// `result` [rows, columns] is on the context's device, valid during the call. In a dry context it is called too, so
  /// that the memory which it allocates from the arena is planned; it must return that memory.
  virtual void observe(const device::Context& ctx, const Operation& operation, const tensor::View& result) = 0;
};

}  // namespace fp8::model
