/// Several layers of one shape in one call, each with a group of the rows of one matrix, so that the casts of all of
/// them are few launches (quant::quantize_groups()) and their GEMMs run together where the library has such GEMMs
/// (gemm::Engine::matmul() of products). Private to this crate.
#pragma once

#include <span>

#include "fp8/linear/groups.h"

namespace fp8::linear {

/// One layer of forward_layers().
struct ForwardLayer {
  const Weight* weight;  ///< one of Groups::weights
  View x, y;             ///< rows of the group, at least one
};

/// One layer of backward_layers().
struct BackwardLayer {
  const Weight* weight;  ///< one of Groups::weights, prepared for the backward pass
  Input x;               ///< values of the rows of the group, at least one, or codes for wgrad
  View dy;               ///< the same rows
  Gradients gradients;   ///< those wanted are the same for all layers
};

/// Whether forward_layers() has these groups of x: on a device, in bf16, without an observer of single GEMMs and with
/// casts that quant::casts_groups() has.
bool forward_runs_together(const Context& ctx, const Groups& groups, const View& x);

/// Whether backward_layers() has them. x may have codes, which are not cast then.
bool backward_runs_together(const Context& ctx, const Groups& groups, const GroupInput& x, const View& dy,
                            const Gradients& gradients);

/// forward() of each layer, whose weights have the same parts. `groups` divides the rows of x, and a layer has those of
/// its weight. The casts of all layers are in memory at once. With memory in `keep` x is cast for wgrad too, and the
/// codes of all groups are returned.
std::vector<quant::Quantized> forward_layers(const Context& ctx, gemm::Engine& engine, const Groups& groups,
                                             const View& x, std::span<const ForwardLayer> layers,
                                             const quant::KeptGroups& keep);

/// backward() of each layer, likewise. Layers without codes have rows of x.values, which are cast.
void backward_layers(const Context& ctx, gemm::Engine& engine, const Groups& groups, const GroupInput& x,
                     const View& dy, std::span<const BackwardLayer> layers);

}  // namespace fp8::linear
