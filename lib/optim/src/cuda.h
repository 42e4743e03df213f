/// The CUDA operations of this crate. Callers have checked the arguments. Defined in cuda.cu; in builds without CUDA
/// they throw Error. Private to this crate.
#pragma once

#include "fp8/optim/muon.h"

namespace fp8::optim {

/// out = a x + b sums of contiguous views of one size, rounded once.
struct Combination {
  View x;     ///< f32 or bf16
  float a;    ///< factor of x
  View sums;  ///< f32
  float b;    ///< factor of the sums
  View out;   ///< in the type of x; may be x
};

}  // namespace fp8::optim

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
/// See optim::momentum; the block is not empty.
void momentum(const Context& ctx, const MomentumBlock& block, const Scalars& scalars);
/// See optim::muon; the block is not empty, and its compute weight is empty if it is the master itself.
void muon(const Context& ctx, const MuonBlock& block, const Settings& settings, const Scalars& scalars);
/// x /= max(the root of *square_sum, 1e-7), x f32 or bf16.
void divide(const Context& ctx, const View& x, const double* square_sum);
/// The combination.
void combine(const Context& ctx, const Combination& combination);

}  // namespace fp8::optim::cuda
