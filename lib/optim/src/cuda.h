/// The CUDA operations of this crate. Callers have checked the arguments. Defined in cuda.cu; in builds without CUDA
/// they throw Error. Private to this crate.
#pragma once

#include "fp8/optim/adamw.h"

namespace fp8::optim::cuda {

/// See optim::adamw; the block is not empty, and its compute weight is empty if it is the master itself.
void adamw(const Context& ctx, const AdamwBlock& block, const Settings& settings, const Scalars& scalars);
/// See optim::add_squares.
void add_squares(const Context& ctx, const View& x, double* total);
/// See optim::add_sum.
void add_sum(const Context& ctx, const View& x, double* total);
/// See optim::add_in_order.
void add_in_order(const Context& ctx, std::span<const double> values, double* total);
/// See optim::set_gate.
void set_gate(const Context& ctx, const double* loss, const double* square_sum, double clip, Gate* gate);

}  // namespace fp8::optim::cuda
