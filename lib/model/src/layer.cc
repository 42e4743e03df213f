// One decoder layer as transformers computes it: norm, attention, residual, norm, SwiGLU, residual.
#include "layer.h"

#include <algorithm>
#include <cmath>

#include "fp8/ops/attention.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"

namespace fp8::model {
namespace {

using dtype::DType;
using tensor::allocate;

// Heads [first, first + heads) of a projection [M, W] as [B, T, heads, D].
View heads_of(const View& x, const LayerEnvironment& env, std::int64_t first, std::int64_t heads) {
  const std::int64_t d = env.config.head_dim, w = x.stride[0];
  View v = x.columns(first * d, (first + heads) * d);
  v.rank = 4;
  v.shape = {env.sequences, env.length, heads, d};
  v.stride = {env.length * w, w, d, 1};
  return v;
}

// The same as [M, heads, D], for norms.
View rows_of_heads(const View& x, const LayerEnvironment& env, std::int64_t first, std::int64_t heads) {
  const std::int64_t d = env.config.head_dim;
  View v = x.columns(first * d, (first + heads) * d);
  v.rank = 3;
  v.shape = {x.shape[0], heads, d, 0};
  v.stride = {x.stride[0], d, 1, 0};
  return v;
}

// q, k and v of a fused projection (or of its gradient).
struct Heads {
  View q, k, v;
};
Heads split(const View& qkv, const LayerEnvironment& env) {
  const std::int64_t h = env.config.num_attention_heads, g = env.config.num_key_value_heads;
  return {heads_of(qkv, env, 0, h), heads_of(qkv, env, h, g), heads_of(qkv, env, h + g, g)};
}

float eps_of(const LayerEnvironment& env) { return static_cast<float>(env.config.rms_norm_eps); }

// Where the amax of the input of a linear is, or goes; empty if its casts need none.
View input_amax(const LayerEnvironment& env, const linear::Weight& weight, Amaxed which) {
  return linear::amax_use(weight).x ? env.amax(env.unit, which) : View{};
}

// The same of the gradient of its output, in `parts` parts.
View gradient_amax(const LayerEnvironment& env, int unit, const linear::Weight& weight, Amaxed which, int parts = 1) {
  const bool used = linear::amax_use(weight).dy && weight.parts.size() == static_cast<std::size_t>(parts);
  return used && unit > 0 ? env.amax(unit, which, parts) : View{};
}

// For the operation that writes what `weight` reads.
ops::Amax recorded(const linear::Weight& weight, const View& amax) { return {amax, linear::amax_use(weight).skip_nan}; }

// Counts the GEMMs of attention over `q`, `passes` times those of a forward pass.
void count_attention(const Context& ctx, const LayerEnvironment& env, const View& q, double passes) {
  if (ctx.dry) return;
  env.engine.count_other(gemm::kind_of(env.activation, env.activation),
                         passes * ops::attention_flops(q, env.documents));
}

// Heads of a layer's cached keys or values, [tokens, G D] as [1, tokens, G, D].
View cached_heads(const View& rows, const LayerEnvironment& env) {
  const std::int64_t d = env.config.head_dim;
  return rows.reshaped({1, rows.shape[0], rows.shape[1] / d, d});
}

// Adds the keys and values of the tokens, which are [M, W] parts of qkv, to the cache, and attends to all in it.
void cached_attention(const Context& ctx, const LayerEnvironment& env, const SavedActivations& kept, const View& q) {
  const std::int64_t queries = env.config.query_size(), width = env.config.key_value_size();
  const std::int64_t end = env.first + env.length;
  const LayerCache& cache = *env.cache;
  ops::copy(ctx, kept.qkv.columns(queries, queries + width), cache.keys.rows(env.first, end));
  ops::copy(ctx, kept.qkv.columns(queries + width, queries + 2 * width), cache.values.rows(env.first, end));
  ops::attention_cached(ctx, q, cached_heads(cache.keys.rows(0, end), env),
                        cached_heads(cache.values.rows(0, end), env), env.first, env.attention_scale(),
                        heads_of(kept.attention, env, 0, env.config.num_attention_heads));
}

void attention_block(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w,
                     const SavedActivations& kept) {
  const std::int64_t h = env.config.num_attention_heads, g = env.config.num_key_value_heads, d = env.config.head_dim;
  linear::forward(ctx, env.engine, w.of(Slot::qkv), kept.n1, kept.qkv,
                  {input_amax(env, w.of(Slot::qkv), Amaxed::n1), true});
  const View q_part = kept.qkv.columns(0, h * d), k_part = kept.qkv.columns(h * d, (h + g) * d);
  env.forward_done(ctx, "self_attn.q_proj", q_part);
  env.forward_done(ctx, "self_attn.k_proj", k_part);
  env.forward_done(ctx, "self_attn.v_proj", kept.qkv.columns((h + g) * d, (h + 2 * g) * d));
  if (env.config.qk_norm) {
    ops::copy(ctx, kept.qkv.columns(0, (h + g) * d), kept.qk_raw);
    const View q = rows_of_heads(kept.qkv, env, 0, h), k = rows_of_heads(kept.qkv, env, h, g);
    ops::rmsnorm_forward(ctx, q, w.vector(Slot::q_norm), eps_of(env), q, kept.q_rstd);
    ops::rmsnorm_forward(ctx, k, w.vector(Slot::k_norm), eps_of(env), k, kept.k_rstd);
    env.forward_done(ctx, "self_attn.q_norm", q_part);
    env.forward_done(ctx, "self_attn.k_norm", k_part);
  }
  const Heads x = split(kept.qkv, env);
  ops::rope(ctx, x.q, env.cos, env.sin, false);
  ops::rope(ctx, x.k, env.cos, env.sin, false);
  env.forward_done(ctx, "self_attn.rope", kept.qkv.columns(0, (h + g) * d));
  if (env.cache != nullptr) return cached_attention(ctx, env, kept, x.q);
  ops::attention_forward(ctx, x.q, x.k, x.v, env.attention_scale(), env.documents, heads_of(kept.attention, env, 0, h),
                         kept.lse, env.attention);
  count_attention(ctx, env, x.q, 1);
  env.forward_done(ctx, "self_attn.attention", kept.attention);
}

// Gradient of the attention block's projection input, from that of its output; dqkv is scratch [M, (H + 2G) D].
void attention_block_backward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w,
                              const UnitGradients& g, const SavedActivations& kept, const View& d_attention,
                              const View& dqkv) {
  const std::int64_t h = env.config.num_attention_heads, kv = env.config.num_key_value_heads, d = env.config.head_dim;
  const Heads x = split(kept.qkv, env), dx = split(dqkv, env);
  ops::attention_backward(ctx, x.q, x.k, x.v, heads_of(kept.attention, env, 0, h), kept.lse,
                          heads_of(d_attention, env, 0, h), env.attention_scale(), env.documents, dx.q, dx.k, dx.v,
                          env.attention);
  count_attention(ctx, env, x.q, ops::kAttentionBackward);
  env.backward_done(ctx, "self_attn.attention", dqkv);
  ops::rope(ctx, dx.q, env.cos, env.sin, true);
  ops::rope(ctx, dx.k, env.cos, env.sin, true);
  env.backward_done(ctx, "self_attn.rope", dqkv.columns(0, (h + kv) * d));
  if (env.config.qk_norm) {
    const View dq = rows_of_heads(dqkv, env, 0, h), dk = rows_of_heads(dqkv, env, h, kv);
    ops::rmsnorm_backward(ctx, dq, rows_of_heads(kept.qk_raw, env, 0, h), w.vector(Slot::q_norm), kept.q_rstd, {}, dq,
                          g.of(Slot::q_norm));
    ops::rmsnorm_backward(ctx, dk, rows_of_heads(kept.qk_raw, env, h, kv), w.vector(Slot::k_norm), kept.k_rstd, {}, dk,
                          g.of(Slot::k_norm));
    env.backward_done(ctx, "self_attn.q_norm", dqkv.columns(0, h * d));
    env.backward_done(ctx, "self_attn.k_norm", dqkv.columns(h * d, (h + kv) * d));
  }
}

// Passes the output of a layer to the observer.
void output_done(const Context& ctx, const LayerEnvironment& env, int unit, const View& x) {
  if (env.observer != nullptr) env.observer->observe(ctx, {false, unit, "mlp.residual"}, x);
}

linear::Gradients to(const View& dx, const UnitGradients& g, Slot weight, Slot bias) {
  const auto* const adapters = std::ranges::find(kAdaptedSlots, weight, &AdaptedSlot::linear);
  return {dx, g.of(weight), g.of(bias), g.accumulate, g.of(adapters->a), g.of(adapters->b)};
}

}  // namespace

float LayerEnvironment::attention_scale() const { return 1.0f / std::sqrt(static_cast<float>(config.head_dim)); }

void fill_rope_tables(const Context& ctx, const hf::ModelConfig& config, const View& cos, const View& sin) {
  const std::vector<double> frequencies = hf::rope_inv_freq(config);
  const std::vector<float> f32(frequencies.begin(), frequencies.end());
  ops::rope_tables(ctx, f32, cos, sin);
}

SavedActivations allocate_saved(const Context& ctx, const LayerEnvironment& env, bool norms_and_h) {
  const hf::ModelConfig& c = env.config;
  const std::int64_t m = env.rows(), h = c.num_attention_heads, g = c.num_key_value_heads, d = c.head_dim;
  const auto activation = [&](std::int64_t cols) { return allocate(ctx, env.activation, {m, cols}, "activations"); };
  SavedActivations k;
  k.rstd1 = allocate(ctx, DType::f32, {m}, "activations");
  k.rstd2 = allocate(ctx, DType::f32, {m}, "activations");
  if (c.qk_norm) {
    k.q_rstd = allocate(ctx, DType::f32, {m, h}, "activations");
    k.k_rstd = allocate(ctx, DType::f32, {m, g}, "activations");
    k.qk_raw = activation((h + g) * d);
  }
  k.qkv = activation((h + 2 * g) * d);
  k.attention = activation(h * d);
  k.lse = allocate(ctx, DType::f32, {env.sequences, h, env.length}, "activations");
  k.mid = activation(c.hidden_size);
  k.gate_up = activation(2 * c.intermediate_size);
  if (norms_and_h) allocate_norms_and_h(ctx, env, k);
  return k;
}

void allocate_norms_and_h(const Context& ctx, const LayerEnvironment& env, SavedActivations& kept) {
  kept.n1 = allocate(ctx, env.activation, {env.rows(), env.config.hidden_size}, "activations");
  kept.n2 = allocate(ctx, env.activation, {env.rows(), env.config.hidden_size}, "activations");
  kept.h = allocate(ctx, env.activation, {env.rows(), env.config.intermediate_size}, "activations");
}

void complete_input(const Context& ctx, const LayerEnvironment& env, int unit, const LayerInput& in) {
  if (in.delta.empty()) return;
  ops::add(ctx, in.base, in.delta, in.x);
  output_done(ctx, env, unit, in.x);
}

void layer_forward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const LayerInput& in,
                   const SavedActivations& kept, const View& delta, bool skip_output) {
  const std::int64_t f = env.config.intermediate_size;
  const linear::Weight &qkv = w.of(Slot::qkv), &o = w.of(Slot::o), &gate_up = w.of(Slot::gate_up),
                       &down = w.of(Slot::down);
  const View norm = w.vector(Slot::input_norm), n2_amax = input_amax(env, gate_up, Amaxed::n2),
             h_amax = input_amax(env, down, Amaxed::h);
  const ops::Amax n1_amax = recorded(qkv, input_amax(env, qkv, Amaxed::n1));
  if (in.delta.empty()) {
    ops::rmsnorm_forward(ctx, in.x, norm, eps_of(env), kept.n1, kept.rstd1, n1_amax);
  } else {
    ops::add_rmsnorm_forward(ctx, in.base, in.delta, norm, eps_of(env), in.x, kept.n1, kept.rstd1, n1_amax);
    output_done(ctx, env, env.unit - 1, in.x);
  }
  env.forward_done(ctx, "input_layernorm", kept.n1);
  attention_block(ctx, env, w, kept);
  linear::forward(ctx, env.engine, o, kept.attention, delta, {input_amax(env, o, Amaxed::attention), false});
  env.forward_done(ctx, "self_attn.o_proj", delta);
  ops::add_rmsnorm_forward(ctx, in.x, delta, w.vector(Slot::post_norm), eps_of(env), kept.mid, kept.n2, kept.rstd2,
                           recorded(gate_up, n2_amax));
  env.forward_done(ctx, "self_attn.residual", kept.mid);
  env.forward_done(ctx, "post_attention_layernorm", kept.n2);
  linear::forward(ctx, env.engine, gate_up, kept.n2, kept.gate_up, {n2_amax, true});
  env.forward_done(ctx, "mlp.gate_proj", kept.gate_up.columns(0, f));
  env.forward_done(ctx, "mlp.up_proj", kept.gate_up.columns(f, 2 * f));
  ops::swiglu_forward(ctx, kept.gate_up, kept.h, recorded(down, h_amax));
  env.forward_done(ctx, "mlp.swiglu", kept.h);
  if (skip_output) return;
  linear::forward(ctx, env.engine, down, kept.h, delta, {h_amax, true});
  env.forward_done(ctx, "mlp.down_proj", delta);
}

void recompute_norms_and_h(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const View& x,
                           const SavedActivations& kept) {
  ops::rmsnorm_forward(ctx, x, w.vector(Slot::input_norm), eps_of(env), kept.n1, kept.rstd1);
  ops::rmsnorm_forward(ctx, kept.mid, w.vector(Slot::post_norm), eps_of(env), kept.n2, kept.rstd2);
  ops::swiglu_forward(ctx, kept.gate_up, kept.h);
}

bool layer_backward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const UnitGradients& g,
                    const View& x, const SavedActivations& kept, const View& dres) {
  const device::Scope scope(*ctx.arena);
  const hf::ModelConfig& c = env.config;
  const std::int64_t m = env.rows();
  const linear::Weight &qkv = w.of(Slot::qkv), &o = w.of(Slot::o), &gate_up = w.of(Slot::gate_up),
                       &down = w.of(Slot::down);
  const View dn = allocate(ctx, env.activation, {m, c.hidden_size}, "scratch");
  const View d_mid_amax = gradient_amax(env, env.unit, o, Amaxed::d_mid);
  {
    const device::Scope mlp(*ctx.arena);
    const View dh = allocate(ctx, env.activation, {m, c.intermediate_size}, "scratch");
    linear::backward(ctx, env.engine, down, kept.h, dres, to(dh, g, Slot::down, Slot::down_bias),
                     {input_amax(env, down, Amaxed::h),
                      env.d_out_known ? gradient_amax(env, env.unit, down, Amaxed::d_out) : View{}});
    env.backward_done(ctx, "mlp.down_proj", dh);
    const View d_gate_up_amax = gradient_amax(env, env.unit, gate_up, Amaxed::d_gate, 2);
    ops::swiglu_backward(ctx, dh, kept.gate_up, kept.gate_up, recorded(gate_up, d_gate_up_amax));
    env.backward_done(ctx, "mlp.swiglu", kept.gate_up);
    linear::backward(ctx, env.engine, gate_up, kept.n2, kept.gate_up, to(dn, g, Slot::gate_up, Slot::gate_up_bias),
                     {input_amax(env, gate_up, Amaxed::n2), d_gate_up_amax});
    env.backward_done(ctx, "mlp.gate_up_proj", dn);
    ops::rmsnorm_backward(ctx, dn, kept.mid, w.vector(Slot::post_norm), kept.rstd2, dres, dres, g.of(Slot::post_norm),
                          recorded(o, d_mid_amax));
    env.backward_done(ctx, "post_attention_layernorm", dres);
  }
  const View d_attention = allocate(ctx, env.activation, {m, c.query_size()}, "scratch");
  const View dqkv = allocate(ctx, env.activation, {m, c.query_size() + 2 * c.key_value_size()}, "scratch");
  linear::backward(ctx, env.engine, o, kept.attention, dres, to(d_attention, g, Slot::o, Slot::o_bias),
                   {input_amax(env, o, Amaxed::attention), d_mid_amax});
  env.backward_done(ctx, "self_attn.o_proj", d_attention);
  attention_block_backward(ctx, env, w, g, kept, d_attention, dqkv);
  linear::backward(ctx, env.engine, qkv, kept.n1, dqkv, to(dn, g, Slot::qkv, Slot::qkv_bias),
                   {input_amax(env, qkv, Amaxed::n1), {}});
  env.backward_done(ctx, "self_attn.qkv_proj", dn);
  const View before = gradient_amax(env, env.unit - 1, down, Amaxed::d_out);  // a recipe is the same in all layers
  ops::rmsnorm_backward(ctx, dn, x, w.vector(Slot::input_norm), kept.rstd1, dres, dres, g.of(Slot::input_norm),
                        recorded(down, before));
  env.backward_done(ctx, "input_layernorm", dres);
  return !before.empty();
}

}  // namespace fp8::model
