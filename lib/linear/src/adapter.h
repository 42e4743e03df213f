/// The GEMMs of adapters. Private to this crate.
#pragma once

#include <vector>

#include "fp8/linear/linear.h"

namespace fp8::linear {

/// Adds scaling B (A x) to the adapter's columns of y.
void add_adapter(const Context& ctx, gemm::Engine& engine, const Adapter& adapter, const View& x, const View& y);

/// Writes the gradients of a and b to `gradients`, and adds the adapters' part of the gradient of x to dx, f32 [M, K].
/// Either may be empty.
void backward_adapters(const Context& ctx, gemm::Engine& engine, const std::vector<Adapter>& adapters, const View& x,
                       const View& dy, const View& dx, const Gradients& gradients);

}  // namespace fp8::linear
