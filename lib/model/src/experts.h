// The experts of a layer, which replace its MLP: router, rows in the order of experts, MLPs of groups of rows, sums
// over the experts of each token. Private to the decoder.
#pragma once

#include "layer.h"

namespace fp8::model {

// Allocates what forward saves, without the inputs of experts and of their down that forward allocates itself.
SavedExperts allocate_experts(const Context& ctx, const LayerEnvironment& env, device::PooledMemory& memory);

// Allocates the values of these inputs that are not saved, for recompute_expert_inputs().
void allocate_expert_inputs(const Context& ctx, const LayerEnvironment& env, device::PooledMemory& memory,
                            SavedExperts& saved);

// From the output of the second norm, x [M, C], to `out` [M, C], the output of the block without the residual. With
// `skip_output` only `saved` is computed. Leaves the inputs of experts and of their down in env.kept.
void experts_block(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const View& x,
                   SavedExperts& saved, const View& out, bool skip_output);

// Whether the rows of a layer with experts can be more than those of a rank hold at a time, so that several passes are
// planned. The same on all ranks; which layers need them is not.
bool can_need_passes(const LayerEnvironment& env);

// Computes the inputs of experts and of their down again. Collective where ranks share experts.
void recompute_expert_inputs(const Context& ctx, const LayerEnvironment& env, const View& x, const SavedExperts& saved);

// The gradient of x, dx [M, C], from that of the block's output, d_out [M, C]. Overwrites saved.gate_up and saved.out.
void experts_block_backward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w,
                            const UnitGradients& g, const View& x, const SavedExperts& saved, const View& d_out,
                            const View& dx);

}  // namespace fp8::model
