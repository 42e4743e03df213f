/// Several layers of one shape in one call, each with rows of its own, so that the GEMMs of all of them run together
/// (gemm::Engine::matmul() of products). Private to this crate.
#pragma once

#include <span>

#include "fp8/linear/linear.h"

namespace fp8::linear {

/// One layer of forward_layers().
struct ForwardLayer {
  const Weight* weight;  ///< prepared for the pass
  View x, y;             ///< [M, K] and [M, N]
};

/// One layer of backward_layers().
struct BackwardLayer {
  const Weight* weight;  ///< prepared for the backward pass
  View x, dy;            ///< [M, K] and [M, N]
  Gradients gradients;   ///< those wanted are the same for all layers
};

/// Whether a device may have one GEMM for several such layers: bf16, or FP8 with scales of whole tensors, and nobody
/// who observes single GEMMs.
bool runs_together(const Context& ctx, const Weight& weight, dtype::DType activation);

/// forward() of each layer, whose weights have the same parts. The casts of all layers are in memory at once.
void forward_layers(const Context& ctx, gemm::Engine& engine, std::span<const ForwardLayer> layers);

/// backward() of each layer, whose weights have the same parts. The casts of all layers are in memory at once.
void backward_layers(const Context& ctx, gemm::Engine& engine, std::span<const BackwardLayer> layers);

}  // namespace fp8::linear
