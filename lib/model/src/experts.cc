// A mixture of experts as transformers computes it, with the router in f32.
#include "experts.h"

#include <algorithm>
#include <span>

#include "dispatch.h"
#include "fp8/device/download.h"
#include "fp8/device/profile.h"
#include "fp8/linear/produced.h"
#include "fp8/ops/codes.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "fp8/ops/route.h"

namespace fp8::model {
namespace {

using dtype::DType;
using tensor::allocate;

// Some experts of this rank, which are computed together: expert begin + i has the rows [first[i], first[i + 1]).
struct Together {
  std::size_t begin = 0, end = 0;
  std::span<const std::int64_t> first;

  linear::Groups groups(const std::vector<linear::Weight>& weights) const {
    return {std::span(weights).subspan(begin, end - begin), first};
  }
  // The rows that these experts have.
  View used(const View& rows) const { return rows.rows(0, first.back()); }
};

// All experts, of a rank that shares them with no other.
Together all_of(const SavedExperts& saved) { return {0, saved.first->size() - 1, *saved.first}; }

Together of_pass(const ExpertPass& pass) {
  return {static_cast<std::size_t>(pass.begin), static_cast<std::size_t>(pass.end), pass.first};
}

// The gradients of some experts, in the gradients of all.
linear::Gradients gradients_of(const Together& t, const std::vector<linear::Weight>& weights, const View& dx,
                               const UnitGradients& g, Slot slot) {
  linear::Gradients all = gradients_to(dx, g, slot, {});
  if (t.begin == 0 && t.end == weights.size()) return all;
  const linear::AdapterRows before = linear::adapter_rows(std::span(weights).first(t.begin)),
                            own = linear::adapter_rows(t.groups(weights).weights);
  const auto part = [](View& v, std::int64_t first, std::int64_t count) {
    if (!v.empty()) v = v.rows(first, first + count);
  };
  const std::int64_t each = all.dw.empty() ? 0 : all.dw.shape[0] / std::ssize(weights);
  part(all.dw, static_cast<std::int64_t>(t.begin) * each, static_cast<std::int64_t>(t.end - t.begin) * each);
  part(all.a, before.a, own.a);
  part(all.b, before.b, own.b);
  return all;
}

// In f32, in memory of the arena unless it is f32 already.
View upcast(const Context& ctx, const View& x) {
  if (x.dtype == DType::f32) return x;
  const View out = allocate(ctx, DType::f32, {x.shape[0], x.shape[1]}, "scratch");
  ops::copy(ctx, x, out);
  return out;
}

gemm::Operand operand(const View& x) { return {x, x.dtype, {}}; }

// Sets the first row of each expert among the rows of this rank's tokens. In a plan of memory as many experts as a
// token has get all tokens, which takes the most; then there are no counts.
void set_first(const LayerEnvironment& env, const SavedExperts& saved, std::span<const std::int32_t> counts) {
  std::vector<std::int64_t>& first = *saved.first;
  const std::int64_t experts = std::ssize(first) - 1, k = saved.routes.per_token();
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto at = static_cast<std::size_t>(e);
    first[at + 1] = counts.empty() ? std::min(e + 1, k) * env.rows.own() : first[at] + counts[at];
  }
}

// The numbers of rows by expert, on the device: [E] of this rank or, if ranks share experts, [G, E] of all of them.
View counts_of(const Context& ctx, const LayerEnvironment& env, const SavedExperts& saved) {
  const View& own = saved.routes.counts;
  if (env.exchange == nullptr) return own;
  const View all = allocate(ctx, DType::i32, {env.exchange->ranks(), own.size()}, "scratch");
  env.exchange->gather_counts(ctx, own, all);
  return all;
}

// Rows of a layer that this rank's experts hold at a time.
std::int64_t room_of(const LayerEnvironment& env) {
  const std::int64_t k = env.config.experts->per_token;
  return env.exchange != nullptr ? expert_room(*env.exchange, k, env.rows.most_own()) : k * env.rows.own();
}

// Products of x and of the router's weight are exact in f32, also if both are bf16.
void route(const Context& ctx, const LayerEnvironment& env, const View& weight, const View& x,
           const SavedExperts& saved) {
  const device::Scope scope(*ctx.arena);
  const View logits = allocate(ctx, DType::f32, {x.shape[0], weight.shape[0]}, "scratch");
  env.engine.matmul(ctx, operand(x), operand(weight.transposed()), logits, {.role = gemm::GemmRole::forward});
  env.forward_done(ctx, "mlp.router", logits);
  ops::route_forward(ctx, logits, {env.config.experts->normalize, env.length, env.lengths, env.rows.first_own()},
                     saved.routes);
}

// The gradients of the router's weight and, in f32, of its input.
void route_backward(const Context& ctx, const LayerEnvironment& env, const View& weight, const UnitGradients& g,
                    const View& x, const SavedExperts& saved, const View& d_weights, const View& dx) {
  const device::Scope scope(*ctx.arena);
  const View d_logits = allocate(ctx, DType::f32, {x.shape[0], weight.shape[0]}, "scratch");
  ops::BalanceGradients balance{{}, env.balance.z};
  if (!env.balance.aux.empty()) balance.aux = env.balance.aux.rows(env.unit - 1, env.unit).reshaped({weight.shape[0]});
  ops::route_backward(ctx, d_weights, saved.routes, env.config.experts->normalize, balance, d_logits);
  env.backward_done(ctx, "mlp.router", d_logits);
  env.engine.matmul(ctx, operand(d_logits), operand(upcast(ctx, weight)), dx, {.role = gemm::GemmRole::dgrad});
  if (!g.of(Slot::router).empty())
    env.engine.matmul(ctx, operand(d_logits.transposed()), operand(upcast(ctx, x)), g.of(Slot::router),
                      {.role = gemm::GemmRole::wgrad, .accumulate = g.accumulate});
}

// Where the inputs of experts [R, C] and of their down [R, X] are while forward computes. Values of h are missing if
// SwiGLU writes their codes in every pass.
struct ExpertInputs {
  LinearInput rows, h;
};

// Whether SwiGLU of some experts writes codes of h, of which `keeps` says whether backward reads them, in place of it.
bool writes_h(const Context& ctx, const LayerEnvironment& env, std::span<const linear::Weight> down, bool keeps) {
  const DType type = env.execution.activation;
  const tensor::Shape shape{room_of(env), env.config.experts->intermediate_size};
  return env.observer == nullptr && !env.observed && type == DType::bf16 &&
         linear::can_write_input(ctx, down, tensor::make_view(nullptr, type, ctx.device, shape), keeps);
}

// Memory for these inputs: that of `saved`, or of env.kept, which becomes that of `saved`, or of the arena.
ExpertInputs allocate_inputs(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w,
                             SavedExperts& saved) {
  const auto input = [&](const std::vector<linear::Weight>& weights, std::int64_t columns, linear::GroupInput& kept) {
    if (!kept.values.empty()) return LinearInput{kept.values};
    const LinearInput in = allocate_input(ctx, env, room_of(env), columns,
                                          [&](const View& x) { return linear::keeps_codes(ctx, weights, x); });
    if (in.codes == nullptr && env.kept != nullptr) kept.values = in.values;
    return in;
  };
  const LinearInput rows = input(w.experts_gate_up, env.config.hidden_size, saved.rows);
  if (!can_need_passes(env) && writes_h(ctx, env, w.experts_down, env.kept != nullptr)) return {rows, {{}, env.kept}};
  return {rows, input(w.experts_down, env.config.experts->intermediate_size, saved.h)};
}

// y of some experts, from the rows of x that they have. Returns codes that are kept.
std::vector<quant::Quantized> forward_linear(const Context& ctx, const LayerEnvironment& env, const Together& t,
                                             const std::vector<linear::Weight>& weights, const LinearInput& x,
                                             const View& y) {
  return linear::forward_groups(ctx, env.engine, t.groups(weights), t.used(x.values), y, {x.codes, room_of(env)});
}

// gate_up of some experts, from their inputs in.rows.
void forward_gate_up(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, SavedExperts& saved,
                     const ExpertInputs& in, const Together& t) {
  const View gate_up = t.used(saved.gate_up);
  saved.rows.columns = forward_linear(ctx, env, t, w.experts_gate_up, in.rows, gate_up);
  env.forward_done(ctx, "mlp.experts.gate_up_proj", gate_up);
}

// gate_up and h of some experts.
void forward_inside(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, SavedExperts& saved,
                    const ExpertInputs& in, const Together& t) {
  forward_gate_up(ctx, env, w, saved, in, t);
  const View h = t.used(in.h.values);
  ops::swiglu_forward(ctx, t.used(saved.gate_up), h);
  env.forward_done(ctx, "mlp.experts.swiglu", h);
}

// The outputs of some experts, `out` [R, C], from their inputs in.rows.
void forward_experts(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, SavedExperts& saved,
                     const ExpertInputs& in, const Together& t, const View& out) {
  const linear::Groups down = t.groups(w.experts_down);
  if (saved.h.values.empty() && writes_h(ctx, env, down.weights, in.h.codes != nullptr)) {
    const device::Scope scope(*ctx.arena);
    forward_gate_up(ctx, env, w, saved, in, t);
    const View gate_up = t.used(saved.gate_up);
    const quant::ProducedGroups h =
        linear::begin_input(ctx, down, env.config.experts->intermediate_size, {in.h.codes, room_of(env)});
    ops::swiglu_codes(ctx, gate_up, h);
    saved.h.columns = linear::forward_groups(ctx, env.engine, down.weights, h, out);
    return;
  }
  forward_inside(ctx, env, w, saved, in, t);
  saved.h.columns = forward_linear(ctx, env, t, w.experts_down, in.h, out);
  env.forward_done(ctx, "mlp.experts.down_proj", out);
}

// The inputs of some experts as backward reads them.
linear::GroupInput used(const Together& t, const linear::GroupInput& x) {
  return {x.values.empty() ? View{} : t.used(x.values), x.columns};
}

// The gradients of some experts' gate_up and of their inputs, from `dh` [R, X], if SwiGLU writes codes of the former.
// Returns false if it does not. In a plan of memory the scales of codes may be unknown in the first steps.
bool backward_codes(const Context& ctx, const LayerEnvironment& env, const linear::Groups& weights,
                    const linear::GroupInput& rows, const View& dh, const View& gate_up, const linear::Gradients& to) {
  if (env.observer != nullptr || env.execution.activation != DType::bf16 || weights.weights.front().parts.size() != 2 ||
      !linear::can_write_gradient(ctx, weights.weights, rows, gate_up, to))
    return false;
  const device::Scope scope(*ctx.arena);
  const std::vector<quant::ProducedGroups> codes = linear::begin_gradient(ctx, weights, to);
  ops::swiglu_backward_codes(ctx, dh, gate_up, {codes[0], codes[1]});
  linear::backward_groups(ctx, env.engine, weights.weights, rows, codes, to);
  return !device::plans_memory(ctx);
}

// `d_rows` [R, C] holds the gradient of the outputs of some experts and receives that of their inputs. Overwrites
// saved.gate_up.
void backward_experts(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const UnitGradients& g,
                      const SavedExperts& saved, const Together& t, const View& d_rows) {
  const device::Scope scope(*ctx.arena);
  const View gate_up = t.used(saved.gate_up);
  const View dh =
      t.used(allocate(ctx, env.execution.activation, {room_of(env), env.config.experts->intermediate_size}, "scratch"));
  linear::backward_groups(ctx, env.engine, t.groups(w.experts_down), used(t, saved.h), d_rows,
                          gradients_of(t, w.experts_down, dh, g, Slot::experts_down));
  env.backward_done(ctx, "mlp.experts.down_proj", dh);
  const linear::Groups weights = t.groups(w.experts_gate_up);
  const linear::GroupInput rows = used(t, saved.rows);
  const linear::Gradients to = gradients_of(t, w.experts_gate_up, d_rows, g, Slot::experts_gate_up);
  if (backward_codes(ctx, env, weights, rows, dh, gate_up, to)) return;
  ops::swiglu_backward(ctx, dh, gate_up, gate_up);
  env.backward_done(ctx, "mlp.experts.swiglu", gate_up);
  linear::backward_groups(ctx, env.engine, weights, rows, gate_up, to);
  env.backward_done(ctx, "mlp.experts.gate_up_proj", d_rows);
}

// The rows of this rank's tokens [N, C], in the order of its routes.
View local_rows(const Context& ctx, const LayerEnvironment& env, const View& x, const SavedExperts& saved) {
  const View local = allocate(ctx, env.execution.activation, {saved.out.shape[0], saved.out.shape[1]}, "scratch");
  ops::gather_rows(ctx, x, saved.routes.tokens, local);
  return local;
}

// Computes this rank's rows, `local` [N, C] in the order of its routes, on the ranks that have their experts, and those
// of all ranks here, pass by pass.
void forward_shared(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const View& local,
                    ExpertInputs in, SavedExperts& saved) {
  if (saved.passes->size() > 1) in.rows.codes = in.h.codes = nullptr;
  for (const ExpertPass& pass : *saved.passes) {
    const device::Scope of_pass_scope(*ctx.arena);
    const Together t = of_pass(pass);
    if (env.routing != nullptr && !ctx.dry)
      env.routing->computed(env.unit - 1, env.exchange->first_expert(env.exchange->rank()) + pass.begin, pass.first);
    send_rows(ctx, *env.exchange, pass, local, t.used(in.rows.values));
    const View out = allocate(ctx, env.execution.activation, {pass.rows(), saved.out.shape[1]}, "scratch");
    forward_experts(ctx, env, w, saved, in, t, out);
    return_rows(ctx, *env.exchange, pass, out, saved.out);
  }
}

// saved.out holds the gradients of the outputs for this rank's rows and receives those of the inputs, x [M, C]. The
// inside of the experts is computed again if there were several passes.
void backward_shared(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const UnitGradients& g,
                     const View& x, SavedExperts saved) {
  const device::Scope scope(*ctx.arena);
  const bool again = saved.passes->size() > 1 || (device::plans_memory(ctx) && can_need_passes(env));
  LayerEnvironment unobserved = env;
  unobserved.observer = nullptr;
  UnitWeights of_forward;
  ExpertInputs in;
  View local;
  if (again) {
    of_forward = env.weights->unshard(ctx, env.unit, Pass::recompute);
    unobserved.kept = nullptr;  // backward of a pass follows at once
    in = allocate_inputs(ctx, unobserved, of_forward, saved);
    saved.rows = {in.rows.values};
    saved.h = {in.h.values};
    local = local_rows(ctx, env, x, saved);
  }
  for (const ExpertPass& pass : *saved.passes) {
    const device::Scope of_pass_scope(*ctx.arena);
    const Together t = of_pass(pass);
    const View d_rows = allocate(ctx, env.execution.activation, {pass.rows(), saved.out.shape[1]}, "scratch");
    send_rows(ctx, *env.exchange, pass, saved.out, d_rows);
    if (again) {
      send_rows(ctx, *env.exchange, pass, local, t.used(in.rows.values));
      const gemm::Uncounted repeated(env.engine);
      forward_inside(ctx, unobserved, of_forward, saved, in, t);
    }
    backward_experts(ctx, env, w, g, saved, t, d_rows);
    return_rows(ctx, *env.exchange, pass, d_rows, saved.out);
  }
}

}  // namespace

bool can_need_passes(const LayerEnvironment& env) {
  return env.exchange != nullptr &&
         room_of(env) < env.exchange->ranks() * env.config.experts->per_token * env.rows.most_own();
}

SavedExperts allocate_experts(const Context& ctx, const LayerEnvironment& env, device::PooledMemory& memory) {
  const hf::ExpertsConfig& e = *env.config.experts;
  const std::int64_t m = env.rows.own(), k = e.per_token, n = k * m;
  const auto of_type = [&](DType type, tensor::Shape shape) {
    return tensor::allocate_pooled(ctx, memory, type, shape, "activations");
  };
  SavedExperts s;
  s.routes = {of_type(DType::f32, {m, e.count}), of_type(DType::f32, {m}),    of_type(DType::i32, {m, k}),
              of_type(DType::f32, {m, k}),       of_type(DType::i32, {m, k}), of_type(DType::i32, {n}),
              of_type(DType::i32, {e.count})};
  s.first = std::make_shared<std::vector<std::int64_t>>(static_cast<std::size_t>(e.count + 1));
  s.gate_up = of_type(env.execution.activation, {room_of(env), 2 * e.intermediate_size});
  s.out = of_type(env.execution.activation, {n, env.config.hidden_size});
  if (env.exchange == nullptr) return s;
  s.passes = std::make_shared<std::vector<ExpertPass>>();
  s.indices = of_type(DType::i32, {expert_indices(*env.exchange, k, env.rows.most_own())});
  if (env.execution.recompute == Recompute::selective)  // rows would travel again
    s.rows.values = of_type(env.execution.activation, {room_of(env), env.config.hidden_size});
  return s;
}

void allocate_expert_inputs(const Context& ctx, const LayerEnvironment& env, device::PooledMemory& memory,
                            SavedExperts& saved) {
  const auto activation = [&](std::int64_t cols) {
    return tensor::allocate_pooled(ctx, memory, env.execution.activation, {room_of(env), cols}, "activations");
  };
  if (saved.rows.values.empty()) saved.rows.values = activation(env.config.hidden_size);
  saved.h.values = activation(env.config.experts->intermediate_size);
}

void experts_block(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w, const View& x,
                   SavedExperts& saved, const View& out, bool skip_output) {
  const device::Scope scope(*ctx.arena);
  route(ctx, env, w.vector(Slot::router), x, saved);
  const View device_counts = counts_of(ctx, env, saved);
  device::Download download(ctx, device_counts.data, device_counts.device, device_counts.bytes());
  const ExpertInputs in = allocate_inputs(ctx, env, w, saved);
  View local;
  if (env.exchange != nullptr)  // while the counts are copied to the host
    local = local_rows(ctx, env, x, saved);
  else
    ops::gather_rows(ctx, x, saved.routes.tokens, in.rows.values);
  std::vector<std::int32_t> counts(ctx.dry ? 0 : static_cast<std::size_t>(device_counts.size()));
  download.finish(counts.data());
  const std::size_t experts = saved.first->size() - 1;
  if (device::planned(ctx))
    counts = balanced_counts(env.exchange, std::ssize(*saved.first) - 1, env.rows.own() * saved.routes.per_token(),
                             ctx.profile->imbalance);
  const std::size_t own = env.exchange != nullptr ? static_cast<std::size_t>(env.exchange->rank()) : 0;
  set_first(env, saved, counts.empty() ? std::span(counts) : std::span(counts).subspan(own * experts, experts));
  if (env.routing != nullptr) env.routing->routed(ctx, env.unit - 1, saved.routes, *saved.first);
  if (env.exchange != nullptr) {
    *saved.passes = device::plans_memory(ctx) ? plan_dry(*env.exchange, saved.routes.per_token(), env.rows.most_own())
                                              : plan_passes(ctx, *env.exchange, counts, room_of(env), saved.indices);
    forward_shared(ctx, env, w, local, in, saved);
  } else {
    if (env.routing != nullptr && !ctx.dry) env.routing->computed(env.unit - 1, 0, *saved.first);
    const Together t = all_of(saved);
    forward_experts(ctx, env, w, saved, in, t, t.used(saved.out));
  }
  if (skip_output) return;
  ops::combine_rows(ctx, saved.out, saved.routes, out);
  env.forward_done(ctx, "mlp.experts", out);
}

void recompute_expert_inputs(const Context& ctx, const LayerEnvironment& env, const View& x,
                             const SavedExperts& saved) {
  if (saved.passes != nullptr && saved.passes->size() > 1) return;  // backward does so, pass by pass
  const Together t = saved.passes == nullptr ? all_of(saved) : of_pass(saved.passes->front());
  const device::Scope scope(*ctx.arena);
  if (env.exchange == nullptr)
    ops::gather_rows(ctx, x, saved.routes.tokens, saved.rows.values);
  else if (env.execution.recompute != Recompute::selective)
    send_rows(ctx, *env.exchange, saved.passes->front(), local_rows(ctx, env, x, saved), t.used(saved.rows.values));
  ops::swiglu_forward(ctx, t.used(saved.gate_up), t.used(saved.h.values));
}

void experts_block_backward(const Context& ctx, const LayerEnvironment& env, const UnitWeights& w,
                            const UnitGradients& g, const View& x, const SavedExperts& saved, const View& d_out,
                            const View& dx) {
  const device::Scope scope(*ctx.arena);
  const std::int64_t m = env.rows.own(), c = env.config.hidden_size;
  const View d_weights = allocate(ctx, DType::f32, {m, saved.routes.per_token()}, "scratch");
  // saved.out becomes the gradient of the experts' outputs, and then of their inputs.
  ops::combine_rows_backward(ctx, d_out, saved.out, saved.routes, saved.out, d_weights);
  const Together t = all_of(saved);
  env.backward_done(ctx, "mlp.experts", t.used(saved.out));
  if (env.exchange != nullptr)
    backward_shared(ctx, env, w, g, x, saved);
  else
    backward_experts(ctx, env, w, g, saved, t, t.used(saved.out));
  const View of_router = allocate(ctx, DType::f32, {m, c}, "scratch");
  route_backward(ctx, env, w.vector(Slot::router), g, x, saved, d_weights, of_router);
  ops::sum_rows(ctx, saved.out, saved.routes, of_router, dx);
  env.backward_done(ctx, "mlp.experts.input", dx);
}

}  // namespace fp8::model
