// One decoder layer: forward, and backward from what forward kept. Private to the decoder.
#pragma once

#include "fp8/model/decoder.h"

namespace fp8::model {

// What every layer of one micro-batch shares.
struct LayerEnvironment {
  const hf::Config& config;
  dtype::DType activation;
  gemm::Engine& engine;
  std::int64_t sequences, length;  // B, T
  View cos, sin;                   // f32 [T, D/2]

  std::int64_t rows() const { return sequences * length; }
  float attention_scale() const;
};

// What forward computes inside a layer and backward reads. M rows.
struct Kept {
  View rstd1, n1;  // first norm: f32 [M], [M, C]
  View q_rstd, k_rstd,
      qk_raw;           // q and k norm: f32 [M, H], [M, G], [M, (H + G) D] before the norm; empty without q/k norms
  View qkv;             // [M, (H + 2G) D] after q/k norms and rope
  View attention, lse;  // [M, H D], f32 [B, H, T]
  View mid, rstd2, n2;  // residual after attention [M, C]; second norm: f32 [M], [M, C]
  View gate_up, h;      // [M, 2F], [M, F]
};

// Memory for a layer's Kept from the arena. Without `norms_and_h` n1, n2 and h are left empty (computed again when
// needed).
Kept take_kept(const Context& ctx, const LayerEnvironment& env, bool norms_and_h);

// Fills the views that take_kept left empty, uncomputed.
void take_norms_and_h(const Context& ctx, const LayerEnvironment& env, Kept& kept);

// out = layer(x); out may be x unless backward needs x. With `skip_output` everything is kept but the last product is
// left out.
void layer_forward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const View& x,
                   const Kept& kept, const View& out, bool skip_output);

// Computes n1, n2 and h again from x and what was kept.
void recompute_norms_and_h(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const View& x,
                           const Kept& kept);

// dres [M, C] holds the gradient of the layer's output and receives that of its input.
void layer_backward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const UnitGradients& g,
                    const View& x, const Kept& kept, const View& dres);

}  // namespace fp8::model
