/// Several layers of one shape in one call, each with a group of the rows of one matrix, so that the casts of all of
/// them are few launches (quant::quantize_groups()) and their GEMMs run together where the library has such GEMMs
/// (gemm::Engine::matmul() of products). Private to this crate.
#pragma once

#include <span>

#include "fp8/linear/groups.h"
#include "fp8/quant/producer.h"

namespace fp8::linear {

/// One layer of forward_layers().
struct ForwardLayer {
  const Weight* weight;  ///< one of Groups::weights
  View x, y;             ///< rows of the group, at least one; x is empty if its codes are all that forward reads
};

/// One layer of backward_layers().
struct BackwardLayer {
  const Weight* weight;  ///< one of Groups::weights, prepared for the backward pass
  Input x;               ///< values of the rows of the group, at least one, or codes for wgrad
  View dy;               ///< the same rows
  Gradients gradients;   ///< those wanted are the same for all layers
};

/// Known scales of x of all groups; empty if there are none.
std::vector<quant::KnownScale> known_x(const Groups& groups);

/// Known scales of dy of a part of all groups, likewise.
std::vector<quant::KnownScale> known_dy(const Groups& groups, const Part& part);

/// The same, in a plan of memory as if all of them were known, as they are after the first steps.
std::vector<quant::KnownScale> known_later(const Context& ctx, const Groups& groups, const Part& part);

/// Whether forward_layers() has these groups of x: on a device, in bf16, without an observer of single GEMMs and with
/// casts that quant::casts_groups() has.
bool forward_runs_together(const Context& ctx, const Groups& groups, const View& x);

/// Whether backward_layers() has them. x may have codes, which are not cast then.
bool backward_runs_together(const Context& ctx, const Groups& groups, const GroupInput& x, const View& dy,
                            const Gradients& gradients);

/// Codes of x of all groups, in memory at once. With memory in `keep` x is cast for wgrad too.
std::vector<quant::QuantizedPair> cast_groups(const Context& ctx, const Groups& groups, const View& x,
                                              const quant::KeptGroups& keep);

/// forward() of each layer, whose weights have the same parts, with the codes of the group of its weight.
void forward_layers(const Context& ctx, gemm::Engine& engine, const Groups& groups,
                    std::span<const ForwardLayer> layers, std::span<const quant::QuantizedPair> codes);

/// backward() of each layer, likewise. Layers without codes have rows of x.values, which are cast, and so is dy unless
/// there are codes of its parts, when only shape and type of dy are read.
void backward_layers(const Context& ctx, gemm::Engine& engine, const Groups& groups, const GroupInput& x,
                     const View& dy, std::span<const BackwardLayer> layers,
                     std::span<const quant::ProducedGroups> codes_of_dy);

}  // namespace fp8::linear
