// The parts of the decoder: the order of operations inside a part, saved activations, and when weights are unsharded
// and gradients complete.
#include "micro_batch.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "experts.h"
#include "fp8/base/error.h"
#include "fp8/device/profile.h"
#include "fp8/ops/codes.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"

namespace fp8::model {
namespace {

using dtype::DType;
using tensor::allocate;

// The ops add to the gradients of norm weights, biases and the untied embedding, so these start at zero.
void clear_accumulated(const Context& ctx, const UnitGradients& g, std::initializer_list<Slot> slots) {
  if (g.accumulate) return;
  for (const Slot s : slots) {
    if (!g.of(s).empty()) ops::zero(ctx, g.of(s));
  }
}

}  // namespace

MicroBatch::State::State(const Decoder& decoder, const Context& context, gemm::Engine& engine, ParameterAccess& source,
                         const Batch& b, PassKind kind)
    : ctx(context),
      env{decoder.config(),
          decoder.sizes(),
          {source.tensor(), b.rows()},
          decoder.execution(),
          engine,
          b.sequences,
          b.length,
          b.documents,
          {},
          {},
          nullptr,
          0,
          decoder.execution().observer,
          0,
          {},
          b.lengths,
          source.exchange(),
          &source,
          b.routing},
      weights(source),
      batch(b),
      head_unit(decoder.units() - 1),
      head_home(env.config.tie_word_embeddings ? 0 : head_unit),
      head_slot(env.config.tie_word_embeddings ? Slot::embedding : Slot::head),
      saves(kind == PassKind::training),
      memory(*context.arena) {
  const std::int64_t amaxes = env.config.num_hidden_layers * static_cast<int>(LayerAmax::count);
  env.amaxes = tensor::allocate_pooled(ctx, memory, DType::f32, {amaxes}, "activations");
  ops::zero(ctx, env.amaxes);
}

void MicroBatch::State::make_rope_tables() {
  for (View* table : {&env.cos, &env.sin})
    *table = tensor::allocate_pooled(ctx, memory, DType::f32, {env.length, env.config.head_dim / 2}, "activations");
  fill_rope_tables(ctx, env.config, env.cos, env.sin);
}

View MicroBatch::State::rows_by_hidden(device::PooledMemory& from) const {
  return tensor::allocate_pooled(ctx, from, env.execution.activation, {env.rows.own(), env.config.hidden_size},
                                 "activations");
}

void MicroBatch::State::allocate_hidden() {
  if (saves) gradient = rows_by_hidden(memory);
  next = {rows_by_hidden(memory)};
}

void MicroBatch::State::forward_layer(int unit, const LayerInput& in, SavedActivations& saved, const View& delta) {
  device::mark(ctx, device::kUnitMark, unit);
  const device::Scope scope(*ctx.arena);
  const UnitWeights w = weights.unshard(ctx, unit, Pass::forward);
  weights.prefetch(unit + 1, Pass::forward);
  env.unit = unit;
  env.observed = env.observed || is_observed(w);
  // The calibration of a run should need no more memory than its steps, which keep codes.
  if (is_calibrated(w)) env.kept = nullptr;
  if (!caches.empty()) env.cache = &caches[static_cast<std::size_t>(unit - 1)];
  layer_forward(ctx, env, w, in, saved, delta, false);
}

void MicroBatch::State::forward_saving(int layer) {
  SavedLayer& own = layers.try_emplace(layer, *ctx.arena).first->second;
  own.input = next.x;
  const View out = rows_by_hidden(own.memory);
  device::PooledMemory recomputed(*ctx.arena);
  const bool full = env.execution.recompute == Recompute::full, keeps = env.execution.recompute == Recompute::none;
  const LayerKinds kind = kinds_of(env.config, layer, layer + 1);
  own.activations = allocate_saved(ctx, env, full ? recomputed : own.memory, kind);
  SavedActivations all = own.activations;
  if (full) all.mid = out;  // which the next layer needs
  env.kept = keeps ? &own.memory : nullptr;
  forward_layer(layer + 1, next, all, gradient);
  if (env.kept != nullptr) own.activations = all;
  next = {out, all.mid, gradient};
}

void MicroBatch::State::forward_overwriting(int first, int last) {
  const device::Scope scope(*ctx.arena);
  device::PooledMemory one_layer(*ctx.arena);
  const LayerKinds kinds = kinds_of(env.config, first, last);
  SavedActivations saved = allocate_saved(ctx, env, one_layer, kinds);
  const View delta = allocate(ctx, env.execution.activation, {env.rows.own(), env.config.hidden_size}, "scratch");
  for (int layer = first; layer < last; ++layer) {
    forward_layer(layer + 1, next, saved, delta);
    next = {next.x, saved.mid, delta};
  }
  complete_hidden();
}

View MicroBatch::State::complete_hidden() {
  complete_input(ctx, env, env.unit, next);
  next = {next.x};
  return next.x;
}

// Allocates what the forward pass did not save, and computes it, except what selective recomputation needs weights for.
SavedActivations MicroBatch::State::recompute_all(int unit, const View& x, device::PooledMemory& recomputed) {
  SavedActivations all = allocate_saved(ctx, env, recomputed, kinds_of(env.config, unit - 1, unit));
  const device::Scope scope(*ctx.arena);
  const UnitWeights w = weights.unshard(ctx, unit, Pass::recompute);
  LayerEnvironment unobserved = env;
  unobserved.observer = nullptr;
  unobserved.routing = nullptr;
  unobserved.kept = &recomputed;
  layer_forward(ctx, unobserved, w, {x}, all,
                allocate(ctx, env.execution.activation, {env.rows.own(), env.config.hidden_size}, "scratch"), true);
  return all;
}

// Starts the weights of forward where backward may repeat it. A gather takes all ranks, also where some of them have
// rows of experts for one pass only.
void MicroBatch::State::prefetch_repeated(int unit) const {
  if (unit < 1 || unit >= head_unit) return;
  if (env.execution.recompute == Recompute::full || (env.config.is_sparse(unit - 1) && can_need_passes(env)))
    weights.prefetch(unit, Pass::recompute);
}

void MicroBatch::State::prefetch_backward(int unit) const {
  prefetch_repeated(unit);
  weights.prefetch(unit, Pass::backward);
}

void MicroBatch::State::backward_layer(int layer) {
  const int unit = env.unit = layer + 1;
  device::mark(ctx, device::kUnitMark, unit);
  if (env.routing != nullptr && !balanced) env.balance = env.routing->gradients(ctx);
  balanced = true;
  const auto found = layers.find(layer);
  if (found == layers.end())
    throw Error("decoder: layer " + std::to_string(layer) + " has no saved activations for backward");
  {
    const SavedLayer& own = found->second;
    const device::Scope scope(*ctx.arena);
    device::PooledMemory recomputed(*ctx.arena);
    SavedActivations saved = own.activations;
    prefetch_repeated(unit);
    if (env.execution.recompute == Recompute::full) saved = recompute_all(unit, own.input, recomputed);
    const bool again = env.execution.recompute != Recompute::full && own.activations.n1.is_missing();
    if (again) allocate_norms_and_h(ctx, env, recomputed, kinds_of(env.config, layer, layer + 1), saved);
    const UnitWeights w = weights.unshard(ctx, unit, Pass::backward);
    prefetch_backward(unit - 1);
    if (again) recompute_norms_and_h(ctx, env, w, own.input, saved);
    const UnitGradients g = weights.gradient_buffers(unit);
    clear_accumulated(ctx, g,
                      {Slot::input_norm, Slot::qkv_bias, Slot::q_norm, Slot::k_norm, Slot::o_bias, Slot::post_norm,
                       Slot::gate_up_bias, Slot::down_bias});
    env.d_out_known = layer_backward(ctx, env, w, g, own.input, saved, gradient);
    weights.gradients_done(unit);
  }
  layers.erase(found);
}

// The head's weights may be in another unit than the final norm (tied).
const linear::Weight& MicroBatch::State::head_weight(const UnitWeights& norm_unit, const UnitWeights& home) const {
  return head_home == head_unit ? norm_unit.of(head_slot) : home.of(head_slot);
}

UnitWeights MicroBatch::State::unshard_home(Pass pass) const {
  return head_home == head_unit ? UnitWeights{} : weights.unshard(ctx, head_home, pass);
}

void MicroBatch::State::final_norm(const View& weight, const View& x, const View& n, const View& rstd,
                                   const ops::Amax& amax) {
  ops::rmsnorm_forward(ctx, x, weight, static_cast<float>(env.config.rms_norm_eps), n, rstd, amax);
  env.unit = head_unit;
  env.forward_done(ctx, "norm", n);
}

// The rows [first, first + count) of the hidden state, normalized, on every rank. Where ranks share the rows, no others
// travel, and each row is on one rank, so that the sum is exact.
View MicroBatch::State::normalized_rows(const UnitWeights& w, std::int64_t first, std::int64_t count) {
  const View rstd = allocate(ctx, DType::f32, {count}, "activations");
  const std::int64_t own = env.rows.first_own(), begin = std::clamp(own, first, first + count),
                     end = std::clamp(own + env.rows.own(), first, first + count);
  const View x = begin < end ? next.x.rows(begin - own, end - own) : View{};
  if (begin < end) final_norm(w.vector(Slot::final_norm), x, x, rstd.rows(begin - first, end - first));
  const View all = allocate(ctx, env.execution.activation, {count, env.config.hidden_size}, "scratch"),
             sum = allocate(ctx, DType::f32, {count, env.config.hidden_size}, "scratch");
  ops::zero(ctx, sum);
  if (begin < end) ops::copy(ctx, x, sum.rows(begin - first, end - first));
  env.rows.ranks.total(ctx, sum.reshaped({sum.size()}));
  ops::copy(ctx, sum, all);
  return all;
}

void MicroBatch::State::logits_of(std::int64_t first, const View& logits) {
  const device::Scope scope(*ctx.arena);
  const std::int64_t count = logits.shape[0];
  const UnitWeights w = weights.unshard(ctx, head_unit, Pass::forward), home = unshard_home(Pass::forward);
  const View x = normalized_rows(w, first, count);
  const DividedSize& vocabulary = env.sizes.vocabulary;
  const View own = vocabulary.divided() ? allocate(ctx, DType::f32, {count, vocabulary.local}, "scratch") : logits;
  linear::forward(ctx, env.engine, head_weight(w, home), x, own);
  if (!vocabulary.divided()) return;
  ops::zero(ctx, logits);
  ops::copy(ctx, own, logits.columns(env.sizes.first_token, env.sizes.first_token + vocabulary.local));
  env.rows.ranks.total(ctx, logits.reshaped({logits.size()}));  // each logit is on one rank, so the sum is exact
}

// Computes the final norm of all rows, unless it is computed in blocks of `step` rows, as codes.
void MicroBatch::State::begin_head(HeadPass& pass, std::int64_t step) {
  const std::int64_t m = env.rows.all, c = pass.x.shape[1];
  const linear::NeededAmaxes needed = linear::needed_amaxes(pass.weight);
  if (needed.x) pass.x_amax = allocate(ctx, DType::f32, {1}, "activations");
  if (needed.dy && pass.of_backward != nullptr) pass.dy_amax = allocate(ctx, DType::f32, {1}, "activations");
  env.kept = pass.of_backward != nullptr ? &memory : nullptr;  // that of a block is other memory
  const auto writes = [&](std::int64_t rows) { return writes_input(ctx, env, pass.weight, rows, c, pass.x_amax); };
  if (writes(std::min(step, m)) && writes((m - 1) % step + 1)) return;
  const View n = allocate(ctx, pass.x.dtype, {pass.x.shape[0], c}, "activations");
  final_norm(pass.norm, pass.x, n, pass.rstd);
  pass.n = env.rows.gathered(ctx, n);
}

// The logits of rows [begin, end). Returns what backward reads of these rows.
linear::Input MicroBatch::State::forward_block(const HeadPass& pass, std::int64_t begin, std::int64_t end,
                                               const View& logits) {
  if (!pass.n.empty()) {
    const View n = pass.n.rows(begin, end);
    linear::forward(ctx, env.engine, pass.weight, n, logits);
    return linear::values_of(n);
  }
  const device::Scope scope(*ctx.arena);
  const View x = pass.x.rows(begin, end), rstd = pass.rstd.rows(begin, end);
  if (!pass.x_amax.empty()) ops::zero(ctx, pass.x_amax);
  final_norm(pass.norm, x, {}, rstd, {pass.x_amax, linear::needed_amaxes(pass.weight).skip_nan});
  return forward_written(ctx, env, pass.weight, end - begin, x.shape[1], pass.x_amax, logits,
                         [&](const quant::ProducedCodes& to) { ops::rmsnorm_codes(ctx, x, pass.norm, rstd, to); });
}

// The losses and gradients of rows [begin, end) of the head, of which x is what forward has left, from their logits.
void MicroBatch::State::backward_block(const HeadPass& pass, const linear::Input& x, std::int64_t begin,
                                       std::int64_t end, const View& logits, const View& losses) {
  const device::Scope scope(*ctx.arena);
  const linear::Weight& head = *pass.of_backward;
  const View targets = batch.targets.reshaped({env.rows.all}).rows(begin, end);
  const linear::Gradients to{pass.dx.rows(begin, end), pass.dw, {}, pass.accumulate || begin > 0};
  if (writes_gradients(ctx, env, head, to, pass.dy_amax)) {
    if (!pass.dy_amax.empty()) ops::zero(ctx, pass.dy_amax);
    const View found = allocate(ctx, DType::f32, {2, end - begin}, "scratch");
    const ops::LossRows rows{found.rows(0, 1), found.rows(1, 2), {pass.dy_amax, linear::needed_amaxes(head).skip_nan}};
    ops::cross_entropy_rows(ctx, logits, targets, losses, pass.gradient_scale, rows);
    const std::vector<quant::ProducedCodes> codes = linear::begin_gradient(ctx, head, end - begin, to, pass.dy_amax);
    ops::cross_entropy_codes(ctx, logits, targets, pass.gradient_scale, rows, codes.front());
    return linear::backward(ctx, env.engine, head, x, codes, to);
  }
  loss_of(logits, targets, losses, pass.gradient_scale, true);
  env.forward_done(ctx, "loss", losses.reshaped({end - begin, 1}));
  env.backward_done(ctx, "loss", logits);
  linear::backward(ctx, env.engine, head, x, logits, to);
  env.backward_done(ctx, "lm_head", to.dx);
}

// Computes the norm, and logits and losses of the rows of all ranks, block by block; with of_backward also gradients.
void MicroBatch::State::run_head(HeadPass pass, const View& losses) {
  const std::int64_t m = env.rows.all, step = head_block_rows(m, env.sizes.vocabulary.whole, env.execution.activation,
                                                              env.execution.logit_bytes);
  begin_head(pass, step);
  // The second block adds to gradients, and those between it and the last take as much memory.
  const auto block_after = [&](std::int64_t begin) {
    const std::int64_t last = begin > 0 && device::plans_memory(ctx) ? (m - 1) / step * step : 0;
    return std::max(begin + step, last);
  };
  for (std::int64_t begin = 0; begin < m; begin = block_after(begin)) {
    const device::Scope scope(*ctx.arena);
    device::PooledMemory kept(*ctx.arena);
    const std::int64_t end = std::min(m, begin + step);
    const View logits =
        allocate(ctx, env.execution.activation, {end - begin, env.sizes.vocabulary.local}, "logits block");
    env.kept = pass.of_backward != nullptr ? &kept : nullptr;
    const linear::Input x = forward_block(pass, begin, end, logits);
    env.forward_done(ctx, "lm_head", logits);
    const View part = losses.rows(begin, end);
    if (pass.of_backward != nullptr) {
      backward_block(pass, x, begin, end, logits, part);
      continue;
    }
    loss_of(logits, batch.targets.reshaped({m}).rows(begin, end), part, 0, false);
    env.forward_done(ctx, "loss", part.reshaped({end - begin, 1}));
  }
  env.kept = nullptr;
}

ops::VocabularyPart MicroBatch::State::part_of_vocabulary() const {
  return {env.sizes.first_token, env.sizes.vocabulary.divided()};
}

// Losses of a block of logits, of which ranks of tensor parallelism have parts of the vocabulary; with `backward` the
// logits become their gradient.
void MicroBatch::State::loss_of(const View& logits, const View& targets, const View& losses, float gradient_scale,
                                bool backward) const {
  if (!env.sizes.vocabulary.divided())
    return ops::cross_entropy(ctx, logits, targets, losses, gradient_scale, backward);
  const device::Scope scope(*ctx.arena);
  const std::int64_t m = logits.shape[0], first = env.sizes.first_token;
  const View maxima = allocate(ctx, DType::f32, {m}, "scratch"), sums = allocate(ctx, DType::f32, {2, m}, "scratch");
  ops::logit_maxima(ctx, logits, maxima);
  env.rows.ranks.maximum(ctx, maxima);
  ops::logit_sums(ctx, logits, targets, first, maxima, sums);
  env.rows.ranks.total(ctx, sums);
  ops::cross_entropy_of_part(ctx, {.logits = logits,
                                   .targets = targets,
                                   .first = first,
                                   .maxima = maxima,
                                   .sums = sums,
                                   .losses = losses,
                                   .gradient_scale = gradient_scale,
                                   .backward = backward});
}

MicroBatch::MicroBatch(const Decoder& decoder, const Context& ctx, gemm::Engine& engine, ParameterAccess& weights,
                       const Batch& batch, PassKind kind)
    : state_(std::make_unique<State>(decoder, ctx, engine, weights, batch, kind)) {
  state_->make_rope_tables();
  state_->allocate_hidden();
}

MicroBatch::MicroBatch(std::unique_ptr<State> state) : state_(std::move(state)) {}
MicroBatch::MicroBatch(MicroBatch&&) noexcept = default;
MicroBatch::~MicroBatch() = default;

View MicroBatch::hidden() { return state_->complete_hidden(); }

View MicroBatch::gradient() const { return state_->gradient; }

void MicroBatch::forward_embedding() {
  State& s = *state_;
  device::mark(s.ctx, device::kUnitMark, 0);
  s.weights.prefetch(0, Pass::forward);
  const device::Scope scope(*s.ctx.arena);
  const UnitWeights w = s.weights.unshard(s.ctx, 0, Pass::forward);
  s.weights.prefetch(1, Pass::forward);
  const View tokens = s.batch.tokens.reshaped({s.env.rows.all}), partial = s.env.rows.memory(s.ctx, s.next.x);
  ops::embedding_forward(s.ctx, tokens, w.vector(Slot::embedding), partial, s.part_of_vocabulary());
  s.env.rows.ranks.sum(s.ctx, partial, {}, s.next.x);
  s.env.unit = 0;
  s.env.forward_done(s.ctx, "embed_tokens", s.next.x);
  s.embedded = true;
}

void MicroBatch::forward_layers(int first, int last) {
  if (!state_->saves) return state_->forward_overwriting(first, last);
  for (int layer = first; layer < last; ++layer) state_->forward_saving(layer);
}

void MicroBatch::forward_head(const View& losses) {
  State& s = *state_;
  const Context& ctx = s.ctx;
  const View x = s.complete_hidden();
  const device::Scope scope(*ctx.arena);
  const View rstd = allocate(ctx, DType::f32, {x.shape[0]}, "activations");
  const UnitWeights w = s.weights.unshard(ctx, s.head_unit, Pass::forward), home = s.unshard_home(Pass::forward);
  s.run_head({.x = x, .norm = w.vector(Slot::final_norm), .rstd = rstd, .weight = s.head_weight(w, home)}, losses);
}

void MicroBatch::forward_logits(std::int64_t first, const View& logits) { state_->logits_of(first, logits); }

void MicroBatch::backward_head(float gradient_scale, const View& losses) {
  State& s = *state_;
  const Context& ctx = s.ctx;
  device::mark(ctx, device::kUnitMark, s.head_unit);
  const View x = s.complete_hidden(), dx = s.gradient;
  const device::Scope scope(*ctx.arena);
  const View rstd = allocate(ctx, DType::f32, {x.shape[0]}, "activations");
  const UnitWeights w = s.weights.unshard(ctx, s.head_unit, Pass::forward), home = s.unshard_home(Pass::forward);
  const UnitWeights wb = s.weights.unshard(ctx, s.head_unit, Pass::backward), home_b = s.unshard_home(Pass::backward);
  s.prefetch_backward(s.head_unit - 1);
  const UnitGradients g = s.weights.gradient_buffers(s.head_unit);
  const UnitGradients gh = s.head_home == s.head_unit ? g : s.weights.gradient_buffers(s.head_home);
  clear_accumulated(ctx, g, {Slot::final_norm});
  const View partial = s.env.rows.memory(ctx, dx);
  s.run_head({.x = x,
              .norm = w.vector(Slot::final_norm),
              .rstd = rstd,
              .weight = s.head_weight(w, home),
              .of_backward = &s.head_weight(wb, home_b),
              .gradient_scale = gradient_scale,
              .dx = partial,
              .dw = gh.of(s.head_slot),
              .accumulate = gh.accumulate},
             losses);
  s.env.rows.ranks.sum(ctx, partial, {}, dx);
  ops::rmsnorm_backward(ctx, {.dy = dx,
                              .x = x,
                              .weight = wb.vector(Slot::final_norm),
                              .rstd = rstd,
                              .dx = dx,
                              .dweight = g.of(Slot::final_norm)});
  s.env.backward_done(ctx, "norm", dx);
  s.weights.gradients_done(s.head_unit);
  s.head_done = true;
  if (s.head_home == 0 && !s.embedded) s.weights.gradients_done(0);
}

void MicroBatch::backward_layers(int first, int last) {
  for (int layer = last - 1; layer >= first; --layer) state_->backward_layer(layer);
}

void MicroBatch::backward_embedding() {
  State& s = *state_;
  device::mark(s.ctx, device::kUnitMark, 0);
  const UnitGradients g = s.weights.gradient_buffers(0);
  if (s.head_home != 0 || !s.head_done) clear_accumulated(s.ctx, g, {Slot::embedding});
  if (!g.of(Slot::embedding).empty()) {
    const device::Scope scope(*s.ctx.arena);
    ops::embedding_backward(s.ctx, s.batch.tokens.reshaped({s.env.rows.all}), s.env.rows.gathered(s.ctx, s.gradient),
                            g.of(Slot::embedding), s.part_of_vocabulary());
  }
  s.weights.gradients_done(0);
}

}  // namespace fp8::model
