// Linears that ranks divide: the rows of inputs and of gradients of outputs that travel, and the GEMMs that a GPU
// computes while they do. Without such ranks each function is one call of linear. Private to the decoder.
#pragma once

#include "layer.h"

namespace fp8::model {

// A linear whose input is the rows of all ranks, of which this one has `own`. Ranks send the codes of their rows if the
// linear reads nothing else; `amax` is that of all rows if its casts need one.
void forward_gathered(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight, const View& own,
                      const View& y, const View& amax);

// The gradients of such a linear. Its input is gathered again, on a GPU while the gradient of the input is computed.
void backward_gathered(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight, const View& own,
                       const View& dy, const linear::Gradients& gradients, const linear::KnownAmaxes& amaxes);

// The gradients of a linear whose output ranks add up, from that of the sum, of which this rank has the rows `d_own`.
void backward_of_sum(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight, const View& x,
                     const View& d_own, const linear::Gradients& gradients, const linear::KnownAmaxes& amaxes);

}  // namespace fp8::model
