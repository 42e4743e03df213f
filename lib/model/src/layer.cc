// One decoder layer as transformers computes it: norm, attention, residual, norm, SwiGLU, residual.
#include "layer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "experts.h"
#include "fp8/linear/observer.h"
#include "fp8/ops/attention.h"
#include "fp8/ops/codes.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"

namespace fp8::model {
namespace {

using dtype::DType;
using tensor::allocate;

// Whether `is` holds for a linear whose input forward leaves to backward as values or codes.
template <class Is>
bool any_with_input(const UnitWeights& w, Is is) {
  return std::ranges::any_of(std::array{Slot::qkv, Slot::gate_up, Slot::down},
                             [&](Slot slot) { return is(w.of(slot)); }) ||
         std::ranges::any_of(w.experts_gate_up, is) || std::ranges::any_of(w.experts_down, is);
}

// Heads [first, first + heads) of a projection [M, W] as [B, T, heads, D].
View heads_of(const View& x, const LayerEnvironment& env, std::int64_t first, std::int64_t heads) {
  const std::int64_t d = env.config.head_dim, w = x.stride[0];
  View v = x.columns(first * d, (first + heads) * d);
  v.rank = 4;
  v.shape = {env.sequences, env.length, heads, d};
  v.stride = {env.length * w, w, d, 1};
  return v;
}

// The rows of some heads as [M, heads, D], for norms.
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
  const std::int64_t h = env.sizes.heads.local, g = env.sizes.key_value_heads.local;
  return {heads_of(qkv, env, 0, h), heads_of(qkv, env, h, g), heads_of(qkv, env, h + g, g)};
}

float eps_of(const LayerEnvironment& env) { return static_cast<float>(env.config.rms_norm_eps); }

DividedLinear divided(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight) {
  return {ctx, env.engine, env.rows, weight};
}

// Where the amax of the input of a linear is, or goes; empty if its casts need none.
View input_amax(const LayerEnvironment& env, const linear::Weight& weight, LayerAmax which) {
  return linear::needed_amaxes(weight).x ? env.amax(env.unit, which) : View{};
}

// The amaxes of the gradient of a linear's output, one for each part; at most `most`, else empty.
View gradient_amax(const LayerEnvironment& env, const linear::Weight& weight, LayerAmax which, int most = 1) {
  const int parts = static_cast<int>(weight.parts.size());
  return linear::needed_amaxes(weight).dy && parts <= most ? env.amax(env.unit, which, parts) : View{};
}

// For the operation that writes what `weight` reads.
ops::Amax recorded(const linear::Weight& weight, const View& amax) {
  return {amax, linear::needed_amaxes(weight).skip_nan};
}

// Counts the GEMMs of attention over `q`, `passes` times those of a forward pass.
void count_attention(const Context& ctx, const LayerEnvironment& env, const View& q, double passes) {
  if (ctx.dry) return;
  env.engine.count_other(gemm::kind_of(env.execution.activation, env.execution.activation),
                         passes * ops::attention_flops(q, env.documents));
}

// Heads of a layer's cached keys or values, [tokens, G D] as [1, tokens, G, D].
View cached_heads(const View& rows, const LayerEnvironment& env) {
  const std::int64_t d = env.config.head_dim;
  return rows.reshaped({1, rows.shape[0], rows.shape[1] / d, d});
}

// Adds the keys and values of the tokens, which are [M, W] parts of qkv, to the cache, and attends to all in it.
void cached_attention(const Context& ctx, const LayerEnvironment& env, const SavedActivations& saved, const View& q) {
  const std::int64_t queries = env.sizes.query(), width = env.sizes.key_value();
  const std::int64_t end = env.first + env.length;
  const LayerCache& cache = *env.cache;
  ops::copy(ctx, saved.qkv.columns(queries, queries + width), cache.keys.rows(env.first, end));
  ops::copy(ctx, saved.qkv.columns(queries + width, queries + 2 * width), cache.values.rows(env.first, end));
  ops::attention_cached(ctx, q, cached_heads(cache.keys.rows(0, end), env),
                        cached_heads(cache.values.rows(0, end), env), env.first, env.attention_scale(),
                        heads_of(saved.attention, env, 0, env.sizes.heads.local));
}

// Attention over the heads of saved.qkv, after q/k norms and rope.
void attend(const Context& ctx, const LayerEnvironment& env, const SavedActivations& saved) {
  const Heads x = split(saved.qkv, env);
  if (env.cache != nullptr) return cached_attention(ctx, env, saved, x.q);
  ops::attention_forward(ctx,
                         {.q = x.q,
                          .k = x.k,
                          .v = x.v,
                          .scale = env.attention_scale(),
                          .documents = env.documents,
                          .out = heads_of(saved.attention, env, 0, env.sizes.heads.local),
                          .lse = saved.lse},
                         env.execution.attention);
  count_attention(ctx, env, x.q, 1);
  env.forward_done(ctx, "self_attn.attention", saved.attention);
}

// allocate_input() for a linear that ranks may divide.
template <class Linear>
LinearInput allocate_input(const Context& ctx, const LayerEnvironment& env, const Linear& linear, std::int64_t rows,
                           std::int64_t columns) {
  return allocate_input(ctx, env, rows, columns, [&](const View& x) { return linear.keeps_codes(x); });
}

// Passes the output of a layer to the observer.
void output_done(const Context& ctx, const LayerEnvironment& env, int unit, const View& x) {
  if (env.observer != nullptr) env.observer->observe(ctx, {false, unit, "mlp.residual"}, x);
}

// From the input of a layer to the projections saved.qkv.
void norm_and_qkv(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const LayerInput& in,
                  SavedActivations& saved) {
  const device::Scope scope(*ctx.arena);
  const linear::Weight& qkv = w.of(Slot::qkv);
  const ColumnParallel projections{divided(ctx, env, qkv)};
  const std::int64_t m = env.rows.own(), c = env.config.hidden_size;
  const View norm = w.vector(Slot::input_norm);
  const ops::Amax amax = recorded(qkv, input_amax(env, qkv, LayerAmax::n1));
  const bool writes = writes_input(ctx, env, qkv, m, c, amax.value);
  const auto [n1, codes] = writes ? LinearInput{} : allocate_input(ctx, env, projections, m, c);
  if (in.delta.empty()) {
    ops::rmsnorm_forward(ctx, in.x, norm, eps_of(env), n1, saved.rstd1, amax);
  } else {
    ops::add_rmsnorm_forward(ctx, {.x = in.base,
                                   .delta = in.delta,
                                   .weight = norm,
                                   .eps = eps_of(env),
                                   .sum = in.x,
                                   .y = n1,
                                   .rstd = saved.rstd1,
                                   .amax = amax});
    output_done(ctx, env, env.unit - 1, in.x);
  }
  env.forward_done(ctx, "input_layernorm", n1);
  env.rows.reduce_amax(ctx, amax.value);
  saved.n1 = writes ? forward_written(
                          ctx, env, qkv, m, c, amax.value, saved.qkv,
                          [&](const quant::ProducedCodes& to) { ops::rmsnorm_codes(ctx, in.x, norm, saved.rstd1, to); })
                    : projections.forward(n1, saved.qkv, amax.value, codes);
}

// From the projections saved.qkv to `out` [M, C], the output of the attention block without the residual.
void attention_block(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w,
                     const SavedActivations& saved, const View& out) {
  const device::Scope scope(*ctx.arena);
  const std::int64_t h = env.sizes.heads.local, g = env.sizes.key_value_heads.local, d = env.config.head_dim;
  const linear::Weight& o = w.of(Slot::o);
  const View q_part = saved.qkv.columns(0, h * d), k_part = saved.qkv.columns(h * d, (h + g) * d);
  env.forward_done(ctx, "self_attn.q_proj", q_part);
  env.forward_done(ctx, "self_attn.k_proj", k_part);
  env.forward_done(ctx, "self_attn.v_proj", saved.qkv.columns((h + g) * d, (h + 2 * g) * d));
  if (env.config.qk_norm) {
    ops::copy(ctx, saved.qkv.columns(0, (h + g) * d), saved.qk_raw);
    const View q = rows_of_heads(saved.qkv, env, 0, h), k = rows_of_heads(saved.qkv, env, h, g);
    ops::rmsnorm_forward(ctx, q, w.vector(Slot::q_norm), eps_of(env), q, saved.q_rstd);
    ops::rmsnorm_forward(ctx, k, w.vector(Slot::k_norm), eps_of(env), k, saved.k_rstd);
    env.forward_done(ctx, "self_attn.q_norm", q_part);
    env.forward_done(ctx, "self_attn.k_norm", k_part);
  }
  const Heads x = split(saved.qkv, env);
  ops::rope(ctx, x.q, env.cos, env.sin, false);
  ops::rope(ctx, x.k, env.cos, env.sin, false);
  env.forward_done(ctx, "self_attn.rope", saved.qkv.columns(0, (h + g) * d));
  attend(ctx, env, saved);
  RowParallel{divided(ctx, env, o)}.forward(saved.attention, out, input_amax(env, o, LayerAmax::attention), false,
                                            nullptr);
  env.forward_done(ctx, "self_attn.o_proj", out);
}

// The second norm: saved.mid from the input of the layer and `delta`, the output of the attention block, and its norm
// n2.
void second_norm(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const View& x,
                 const View& delta, const SavedActivations& saved, const View& n2) {
  const linear::Weight& gate_up = w.of(Slot::gate_up);
  const ops::Amax amax = recorded(gate_up, input_amax(env, gate_up, LayerAmax::n2));
  ops::add_rmsnorm_forward(ctx, {.x = x,
                                 .delta = delta,
                                 .weight = w.vector(Slot::post_norm),
                                 .eps = eps_of(env),
                                 .sum = saved.mid,
                                 .y = n2,
                                 .rstd = saved.rstd2,
                                 .amax = amax});
  env.forward_done(ctx, "self_attn.residual", saved.mid);
  env.forward_done(ctx, "post_attention_layernorm", n2);
  env.rows.reduce_amax(ctx, amax.value);
}

// From `delta`, the output of the attention block, to the projections saved.gate_up.
void norm_and_gate_up(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const View& x,
                      const View& delta, SavedActivations& saved) {
  const device::Scope scope(*ctx.arena);
  const linear::Weight& gate_up = w.of(Slot::gate_up);
  const ColumnParallel projections{divided(ctx, env, gate_up)};
  const std::int64_t m = env.rows.own(), c = env.config.hidden_size;
  const View amax = input_amax(env, gate_up, LayerAmax::n2);
  const bool writes = writes_input(ctx, env, gate_up, m, c, amax);
  const auto [n2, codes] = writes ? LinearInput{} : allocate_input(ctx, env, projections, m, c);
  second_norm(ctx, env, w, x, delta, saved, n2);
  saved.n2 = writes ? forward_written(ctx, env, gate_up, m, c, amax, saved.gate_up,
                                      [&](const quant::ProducedCodes& to) {
                                        ops::rmsnorm_codes(ctx, saved.mid, w.vector(Slot::post_norm), saved.rstd2, to);
                                      })
                    : projections.forward(n2, saved.gate_up, amax, codes);
}

// From the projections saved.gate_up to `out` [M, C], the output of the MLP without the residual. With `skip_output`
// the last GEMM is skipped.
void mlp_block(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, SavedActivations& saved,
               const View& out, bool skip_output) {
  const device::Scope scope(*ctx.arena);
  const std::int64_t f = env.sizes.intermediate.local;
  const linear::Weight& down = w.of(Slot::down);
  const RowParallel projection{divided(ctx, env, down)};
  const View h_amax = input_amax(env, down, LayerAmax::h);
  if (!skip_output && writes_input(ctx, env, down, env.rows.all, f, {})) {
    saved.h = forward_written(ctx, env, down, env.rows.all, f, {}, out,
                              [&](const quant::ProducedCodes& to) { ops::swiglu_codes(ctx, saved.gate_up, to); });
    return;
  }
  const auto [h, codes] = skip_output ? LinearInput{allocate_values(ctx, env, env.rows.all, f), nullptr}
                                      : allocate_input(ctx, env, projection, env.rows.all, f);
  env.forward_done(ctx, "mlp.gate_proj", saved.gate_up.columns(0, f));
  env.forward_done(ctx, "mlp.up_proj", saved.gate_up.columns(f, 2 * f));
  ops::swiglu_forward(ctx, saved.gate_up, h, recorded(down, h_amax));
  env.forward_done(ctx, "mlp.swiglu", h);
  env.rows.reduce_amax(ctx, h_amax);
  saved.h = linear::values_of(h);
  if (skip_output) return;
  saved.h = projection.forward(h, out, h_amax, true, codes);
  env.forward_done(ctx, "mlp.down_proj", out);
}

// The gradient of saved.qkv before rope and q/k norms, dqkv [M, (H + 2G) D], from d_attention [M, H D], the gradient of
// saved.attention.
void attend_backward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const UnitGradients& g,
                     const SavedActivations& saved, const View& d_attention, const View& dqkv) {
  const std::int64_t h = env.sizes.heads.local, kv = env.sizes.key_value_heads.local, d = env.config.head_dim;
  const Heads x = split(saved.qkv, env), dx = split(dqkv, env);
  ops::attention_backward(ctx,
                          {.q = x.q,
                           .k = x.k,
                           .v = x.v,
                           .out = heads_of(saved.attention, env, 0, h),
                           .lse = saved.lse,
                           .dout = heads_of(d_attention, env, 0, h),
                           .scale = env.attention_scale(),
                           .documents = env.documents,
                           .dq = dx.q,
                           .dk = dx.k,
                           .dv = dx.v},
                          env.execution.attention);
  count_attention(ctx, env, x.q, ops::kAttentionBackward);
  env.rows.ranks.sum_copies(ctx, dqkv.columns(h * d, (h + 2 * kv) * d));
  env.backward_done(ctx, "self_attn.attention", dqkv);
  ops::rope(ctx, dx.q, env.cos, env.sin, true);
  ops::rope(ctx, dx.k, env.cos, env.sin, true);
  env.backward_done(ctx, "self_attn.rope", dqkv.columns(0, (h + kv) * d));
  if (env.config.qk_norm) {
    const View dq = rows_of_heads(dqkv, env, 0, h), dk = rows_of_heads(dqkv, env, h, kv);
    ops::rmsnorm_backward(ctx, {.dy = dq,
                                .x = rows_of_heads(saved.qk_raw, env, 0, h),
                                .weight = w.vector(Slot::q_norm),
                                .rstd = saved.q_rstd,
                                .dx = dq,
                                .dweight = g.of(Slot::q_norm)});
    ops::rmsnorm_backward(ctx, {.dy = dk,
                                .x = rows_of_heads(saved.qk_raw, env, h, kv),
                                .weight = w.vector(Slot::k_norm),
                                .rstd = saved.k_rstd,
                                .dx = dk,
                                .dweight = g.of(Slot::k_norm)});
    env.backward_done(ctx, "self_attn.q_norm", dqkv.columns(0, h * d));
    env.backward_done(ctx, "self_attn.k_norm", dqkv.columns(h * d, (h + kv) * d));
  }
}

// The gradient of saved.n1, d_n1 [M, C], from that of the block's output, d_out [M, C], whose amax is d_out_amax if its
// casts need one.
void attention_block_backward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w,
                              const UnitGradients& g, const SavedActivations& saved, const View& d_out,
                              const View& d_out_amax, const View& d_n1) {
  const device::Scope scope(*ctx.arena);
  const std::int64_t queries = env.sizes.query(), all = queries + 2 * env.sizes.key_value();
  const linear::Weight &qkv = w.of(Slot::qkv), &o = w.of(Slot::o);
  const View d_attention = allocate(ctx, env.execution.activation, {env.rows.all, queries}, "scratch");
  const View dqkv = allocate(ctx, env.execution.activation, {env.rows.all, all}, "scratch");
  RowParallel{divided(ctx, env, o)}.backward(linear::values_of(saved.attention), d_out,
                                             gradients_to(d_attention, g, Slot::o, g.of(Slot::o_bias)),
                                             {input_amax(env, o, LayerAmax::attention), d_out_amax});
  env.backward_done(ctx, "self_attn.o_proj", d_attention);
  attend_backward(ctx, env, w, g, saved, d_attention, dqkv);
  ColumnParallel{divided(ctx, env, qkv)}.backward(saved.n1, dqkv,
                                                  gradients_to(d_n1, g, Slot::qkv, g.of(Slot::qkv_bias)),
                                                  {input_amax(env, qkv, LayerAmax::n1), {}});
  env.backward_done(ctx, "self_attn.qkv_proj", d_n1);
}

// The gradient of saved.n2, d_n2 [M, C], from that of the block's output, d_out [M, C]. May overwrite saved.gate_up.
void mlp_block_backward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const UnitGradients& g,
                        const SavedActivations& saved, const View& d_out, const View& d_n2) {
  const device::Scope scope(*ctx.arena);
  const linear::Weight &gate_up = w.of(Slot::gate_up), &down = w.of(Slot::down);
  const View dh = allocate(ctx, env.execution.activation, {env.rows.all, env.sizes.intermediate.local}, "scratch");
  RowParallel{divided(ctx, env, down)}.backward(
      saved.h, d_out, gradients_to(dh, g, Slot::down, g.of(Slot::down_bias)),
      {input_amax(env, down, LayerAmax::h), env.d_out_known ? gradient_amax(env, down, LayerAmax::d_out) : View{}});
  env.backward_done(ctx, "mlp.down_proj", dh);
  const linear::Gradients to = gradients_to(d_n2, g, Slot::gate_up, g.of(Slot::gate_up_bias));
  const View n2_amax = input_amax(env, gate_up, LayerAmax::n2);
  if (gate_up.parts.size() == 2 && writes_gradients(ctx, env, gate_up, to, {})) {
    const std::vector<quant::ProducedCodes> codes = linear::begin_gradient(ctx, gate_up, env.rows.all, to);
    ops::swiglu_backward_codes(ctx, dh, saved.gate_up, {codes[0], codes[1]});
    return linear::backward(ctx, env.engine, gate_up, saved.n2, codes, to, {n2_amax, {}});
  }
  const View d_gate_up_amax = gradient_amax(env, gate_up, LayerAmax::d_gate, 2);
  ops::swiglu_backward(ctx, dh, saved.gate_up, saved.gate_up, recorded(gate_up, d_gate_up_amax));
  env.backward_done(ctx, "mlp.swiglu", saved.gate_up);
  env.rows.reduce_amax(ctx, d_gate_up_amax);
  ColumnParallel{divided(ctx, env, gate_up)}.backward(saved.n2, saved.gate_up, to, {n2_amax, d_gate_up_amax});
  env.backward_done(ctx, "mlp.gate_up_proj", d_n2);
}

}  // namespace

bool writes_input(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight, std::int64_t rows,
                  std::int64_t columns, const View& amax) {
  const DType type = env.execution.activation;
  return env.rows.ranks.ranks() == 1 && env.observer == nullptr && !env.observed && type == DType::bf16 &&
         linear::can_write_input(ctx, weight, tensor::make_view(nullptr, type, ctx.device, {rows, columns}), amax,
                                 env.kept != nullptr);
}

bool writes_gradients(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight,
                      const linear::Gradients& to, const View& amaxes) {
  return env.rows.ranks.ranks() == 1 && env.observer == nullptr && env.execution.activation == DType::bf16 &&
         linear::can_write_gradient(ctx, weight, to, amaxes);
}

linear::Gradients gradients_to(const View& dx, const UnitGradients& g, Slot weight, const View& bias) {
  const auto* const adapters = std::ranges::find(kAdaptedSlots, weight, &AdaptedSlot::linear);
  return {dx, g.of(weight), bias, g.accumulate, g.of(adapters->a), g.of(adapters->b)};
}

View allocate_values(const Context& ctx, const LayerEnvironment& env, std::int64_t rows, std::int64_t columns) {
  const DType type = env.execution.activation;
  return env.kept == nullptr ? allocate(ctx, type, {rows, columns}, "scratch")
                             : tensor::allocate_pooled(ctx, *env.kept, type, {rows, columns}, "activations");
}

LayerKinds kinds_of(const hf::ModelConfig& config, int first, int last) {
  LayerKinds all;
  for (int layer = first; layer < last; ++layer) (config.is_sparse(layer) ? all.sparse : all.dense) = true;
  return all;
}

float LayerEnvironment::attention_scale() const { return 1.0f / std::sqrt(static_cast<float>(config.head_dim)); }

void fill_rope_tables(const Context& ctx, const hf::ModelConfig& config, const View& cos, const View& sin) {
  const std::vector<double> frequencies = hf::rope_inv_freq(config);
  const std::vector<float> f32(frequencies.begin(), frequencies.end());
  ops::rope_tables(ctx, f32, cos, sin);
}

SavedActivations allocate_saved(const Context& ctx, const LayerEnvironment& env, device::PooledMemory& memory,
                                LayerKinds kinds) {
  const hf::ModelConfig& c = env.config;
  const std::int64_t m = env.rows.all, own = env.rows.own(), h = env.sizes.heads.local,
                     g = env.sizes.key_value_heads.local, d = c.head_dim;
  const auto of_type = [&](DType type, tensor::Shape shape) {
    return tensor::allocate_pooled(ctx, memory, type, shape, "activations");
  };
  const auto activation = [&](std::int64_t cols) { return of_type(env.execution.activation, {m, cols}); };
  SavedActivations s;
  s.rstd1 = of_type(DType::f32, {own});
  s.rstd2 = of_type(DType::f32, {own});
  if (c.qk_norm) {
    s.q_rstd = of_type(DType::f32, {m, h});
    s.k_rstd = of_type(DType::f32, {m, g});
    s.qk_raw = activation((h + g) * d);
  }
  s.qkv = activation((h + 2 * g) * d);
  s.attention = activation(h * d);
  s.lse = of_type(DType::f32, {env.sequences, h, env.length});
  s.mid = of_type(env.execution.activation, {own, c.hidden_size});
  if (kinds.dense) s.gate_up = activation(2 * env.sizes.intermediate.local);
  if (kinds.sparse) s.experts = allocate_experts(ctx, env, memory);
  return s;
}

void allocate_norms_and_h(const Context& ctx, const LayerEnvironment& env, device::PooledMemory& memory,
                          LayerKinds kinds, SavedActivations& saved) {
  const auto activation = [&](std::int64_t rows, std::int64_t cols) {
    return linear::values_of(
        tensor::allocate_pooled(ctx, memory, env.execution.activation, {rows, cols}, "activations"));
  };
  saved.n1 = activation(env.rows.own(), env.config.hidden_size);
  saved.n2 = activation(env.rows.own(), env.config.hidden_size);
  if (kinds.dense) saved.h = activation(env.rows.all, env.sizes.intermediate.local);
  if (kinds.sparse) allocate_expert_inputs(ctx, env, memory, saved.experts);
}

void complete_input(const Context& ctx, const LayerEnvironment& env, int unit, const LayerInput& in) {
  if (in.delta.empty()) return;
  ops::add(ctx, in.base, in.delta, in.x);
  output_done(ctx, env, unit, in.x);
}

void layer_forward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const LayerInput& in,
                   SavedActivations& saved, const View& delta, bool skip_output) {
  norm_and_qkv(ctx, env, w, in, saved);
  attention_block(ctx, env, w, saved, delta);
  if (!env.sparse()) {
    norm_and_gate_up(ctx, env, w, in.x, delta, saved);
    return mlp_block(ctx, env, w, saved, delta, skip_output);
  }
  const device::Scope scope(*ctx.arena);
  const View n2 = allocate_values(ctx, env, env.rows.own(), env.config.hidden_size);
  second_norm(ctx, env, w, in.x, delta, saved, n2);
  saved.n2 = linear::values_of(n2);
  experts_block(ctx, env, w, n2, saved.experts, delta, skip_output);
}

bool is_observed(const UnitWeights& w) {
  return any_with_input(w, [](const linear::Weight& weight) { return active_observer(weight.precision) != nullptr; });
}

bool is_calibrated(const UnitWeights& w) {
  return any_with_input(w, [](const linear::Weight& weight) {
    return weight.precision.recipe == nullptr && !weight.known.x.scale.empty();
  });
}

void recompute_norms_and_h(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const View& x,
                           const SavedActivations& saved) {
  const View &n1 = saved.n1.values, &n2 = saved.n2.values;
  ops::rmsnorm_forward(ctx, x, w.vector(Slot::input_norm), eps_of(env), n1, saved.rstd1);
  ops::rmsnorm_forward(ctx, saved.mid, w.vector(Slot::post_norm), eps_of(env), n2, saved.rstd2);
  if (env.sparse())
    recompute_expert_inputs(ctx, env, n2, saved.experts);
  else
    ops::swiglu_forward(ctx, saved.gate_up, saved.h.values);
}

bool layer_backward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const UnitGradients& g,
                    const View& x, const SavedActivations& saved, const View& dres) {
  const device::Scope scope(*ctx.arena);
  const linear::Weight& o = w.of(Slot::o);
  const View dn = allocate(ctx, env.execution.activation, {env.rows.own(), env.config.hidden_size}, "scratch");
  const View d_mid_amax = gradient_amax(env, o, LayerAmax::d_mid);
  if (env.sparse())
    experts_block_backward(ctx, env, w, g, saved.n2.values, saved.experts, dres, dn);
  else
    mlp_block_backward(ctx, env, w, g, saved, dres, dn);
  ops::rmsnorm_backward(ctx, {.dy = dn,
                              .x = saved.mid,
                              .weight = w.vector(Slot::post_norm),
                              .rstd = saved.rstd2,
                              .upstream = dres,
                              .dx = dres,
                              .dweight = g.of(Slot::post_norm),
                              .amax = recorded(o, d_mid_amax)});
  env.backward_done(ctx, "post_attention_layernorm", dres);
  env.rows.reduce_amax(ctx, d_mid_amax);
  attention_block_backward(ctx, env, w, g, saved, dres, d_mid_amax, dn);
  const View before = w.down_before.dy ? env.amax(env.unit - 1, LayerAmax::d_out) : View{};
  ops::rmsnorm_backward(ctx, {.dy = dn,
                              .x = x,
                              .weight = w.vector(Slot::input_norm),
                              .rstd = saved.rstd1,
                              .upstream = dres,
                              .dx = dres,
                              .dweight = g.of(Slot::input_norm),
                              .amax = {before, w.down_before.skip_nan}});
  env.backward_done(ctx, "input_layernorm", dres);
  env.rows.reduce_amax(ctx, before);
  return !before.empty();
}

}  // namespace fp8::model
