/// What this crate's CUDA side does for the entrances, which have checked the arguments. Builds without CUDA have
/// stand-ins that say so. Private to this crate.
#pragma once

#include "fp8/optim/adamw.h"

namespace fp8::optim::cuda {

/// See optim::adamw; the block is not empty, and its copy is empty where it is the master itself.
void adamw(const Context& ctx, const Block& block, const Settings& settings, const Scalars& scalars);
/// See optim::sum_of_squares; waits for the device. Scratch from the arena.
double sum_of_squares(const Context& ctx, const View& x);

}  // namespace fp8::optim::cuda
