// The decoder's passes: the order of units, saved activations, and when weights are unsharded and gradients complete.
#include "fp8/model/decoder.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/ops/attention.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "layer.h"

namespace fp8::model {
namespace {

using dtype::DType;
using tensor::allocate;

// State of one micro-batch during a pass.
struct MicroBatch {
  const Context& ctx;
  LayerEnvironment env;
  WeightSource& weights;
  const Batch& batch;
  int head_unit;  // final norm and head
  int head_home;  // unit that holds the head's matrix: 0 when tied
  Slot head_slot;
  std::int64_t logit_bytes;  // see head_block_rows()

  // Without rotary tables.
  MicroBatch(const Context& context, gemm::Engine& engine, WeightSource& source, const Batch& b,
             const hf::ModelConfig& config, const DecoderOptions& options)
      : ctx(context),
        env{config, options.activation, engine, b.sequences,      b.length, b.documents, {}, {}, nullptr,
            0,      options.observer,   0,      options.attention},
        weights(source),
        batch(b),
        head_unit(static_cast<int>(config.num_hidden_layers) + 1),
        head_home(config.tie_word_embeddings ? 0 : head_unit),
        head_slot(config.tie_word_embeddings ? Slot::embedding : Slot::head),
        logit_bytes(options.logit_bytes) {
    env.amaxes = allocate(ctx, DType::f32, {config.num_hidden_layers * static_cast<int>(Amaxed::count)}, "activations");
    ops::zero(ctx, env.amaxes);
  }

  void make_rope_tables() {
    env.cos = allocate(ctx, DType::f32, {env.length, env.config.head_dim / 2}, "activations");
    env.sin = allocate(ctx, DType::f32, {env.length, env.config.head_dim / 2}, "activations");
    fill_rope_tables(ctx, env.config, env.cos, env.sin);
  }

  View rows_by_hidden(std::string_view category) const {
    return allocate(ctx, env.activation, {env.rows(), env.config.hidden_size}, category);
  }

  void embed(const View& x) {
    weights.prefetch(0);
    const device::Scope scope(*ctx.arena);
    const UnitWeights w = weights.unshard(ctx, 0, Pass::forward);
    weights.prefetch(1);
    ops::embedding_forward(ctx, batch.tokens.reshaped({env.rows()}), w.vector(Slot::embedding), x);
    env.unit = 0;
    env.forward_done(ctx, "embed_tokens", x);
  }

  // See layer_forward().
  void forward_layer(int unit, const LayerInput& in, const SavedActivations& kept, const View& delta) {
    const device::Scope scope(*ctx.arena);
    const UnitWeights w = weights.unshard(ctx, unit, Pass::forward);
    weights.prefetch(unit + 1);
    env.unit = unit;
    layer_forward(ctx, env, w, in, kept, delta, false);
  }

  // The input of a layer, or of the head, among those of all [L + 1, M, C].
  View input_of(const View& inputs, int layer) const {
    return inputs.rows(layer, layer + 1).reshaped({env.rows(), env.config.hidden_size});
  }

  // What forward_layers() reads and keeps besides x.
  struct Layers {
    int first = 0;                            // layer to begin with
    View inputs{};                            // to which the inputs of the layers are copied, unless it is empty
    std::span<const LayerCache> caches = {};  // of all layers, or empty
  };

  // Layers without saved activations: x is overwritten layer by layer.
  void forward_layers(const View& x, const Layers& layers) {
    const device::Scope scope(*ctx.arena);
    const SavedActivations kept = allocate_saved(ctx, env, true);  // of one layer after the other
    const View delta = rows_by_hidden("scratch");
    LayerInput in{x};
    for (int unit = layers.first + 1; unit < head_unit; ++unit) {
      if (!layers.caches.empty()) env.cache = &layers.caches[static_cast<std::size_t>(unit - 1)];
      forward_layer(unit, in, kept, delta);
      if (!layers.inputs.empty()) ops::copy(ctx, x, input_of(layers.inputs, unit - 1));
      in = {x, kept.mid, delta};
    }
    complete_input(ctx, env, head_unit - 1, in);
  }

  // Calls body(weight, first row, one past the last) for blocks of normalized rows.
  template <class Body>
  void head_blocks(Body&& body) {
    const std::int64_t m = env.rows(), step = head_block_rows(m, env.config.vocab_size, env.activation, logit_bytes);
    for (std::int64_t begin = 0; begin < m; begin += step) {
      const device::Scope scope(*ctx.arena);
      const std::int64_t end = std::min(m, begin + step);
      body(allocate(ctx, env.activation, {end - begin, env.config.vocab_size}, "logits block"), begin, end);
    }
  }

  // The head's weights may be in another unit than the final norm (tied).
  const linear::Weight& head_weight(const UnitWeights& norm_unit, const UnitWeights& home) const {
    return head_home == head_unit ? norm_unit.of(head_slot) : home.of(head_slot);
  }
  UnitWeights unshard_home(Pass pass) const {
    return head_home == head_unit ? UnitWeights{} : weights.unshard(ctx, head_home, pass);
  }

  void final_norm(const UnitWeights& w, const View& x, const View& n, const View& rstd) {
    ops::rmsnorm_forward(ctx, x, w.vector(Slot::final_norm), static_cast<float>(env.config.rms_norm_eps), n, rstd);
    env.unit = head_unit;
    env.forward_done(ctx, "norm", n);
  }

  // The losses of some rows, which the observer gets as a column.
  void losses_done(const View& losses) const { env.forward_done(ctx, "loss", losses.reshaped({losses.shape[0], 1})); }

  void head_forward(const View& x, const View& losses) {
    const device::Scope scope(*ctx.arena);
    const View n = rows_by_hidden("activations"), rstd = allocate(ctx, DType::f32, {env.rows()}, "activations");
    const UnitWeights w = weights.unshard(ctx, head_unit, Pass::forward), home = unshard_home(Pass::forward);
    final_norm(w, x, n, rstd);
    const View targets = batch.targets.reshaped({env.rows()});
    head_blocks([&](const View& logits, std::int64_t begin, std::int64_t end) {
      linear::forward(ctx, env.engine, head_weight(w, home), n.rows(begin, end), logits);
      env.forward_done(ctx, "lm_head", logits);
      ops::cross_entropy(ctx, logits, targets.rows(begin, end), losses.rows(begin, end), 0, false);
      losses_done(losses.rows(begin, end));
    });
  }

  // Loss and its gradient: dres [M, C] receives the gradient of x, the head's input.
  void head_forward_backward(const View& x, const View& losses, float gradient_scale, const View& dres);
  void backward_layer(int unit, const View& x, SavedActivations kept, const View& dres, Recompute recompute);
  void backward_embedding(const View& dres);
};

// The ops add to the gradients of norm weights, biases and the untied embedding, so these start at zero.
void clear_accumulated(const Context& ctx, const UnitGradients& g, std::initializer_list<Slot> slots) {
  if (g.accumulate || ctx.dry) return;
  for (const Slot s : slots) {
    if (!g.of(s).empty()) ops::zero(ctx, g.of(s));
  }
}

void MicroBatch::head_forward_backward(const View& x, const View& losses, float gradient_scale, const View& dres) {
  const device::Scope scope(*ctx.arena);
  const View n = rows_by_hidden("activations"), rstd = allocate(ctx, DType::f32, {env.rows()}, "activations");
  const UnitWeights w = weights.unshard(ctx, head_unit, Pass::forward), home = unshard_home(Pass::forward);
  const UnitWeights wb = weights.unshard(ctx, head_unit, Pass::backward), home_b = unshard_home(Pass::backward);
  weights.prefetch(head_unit - 1);
  const UnitGradients g = weights.gradient_buffers(head_unit);
  const UnitGradients gh = head_home == head_unit ? g : weights.gradient_buffers(head_home);
  clear_accumulated(ctx, g, {Slot::final_norm});
  final_norm(w, x, n, rstd);
  const View targets = batch.targets.reshaped({env.rows()});
  head_blocks([&](const View& logits, std::int64_t begin, std::int64_t end) {
    linear::forward(ctx, env.engine, head_weight(w, home), n.rows(begin, end), logits);
    env.forward_done(ctx, "lm_head", logits);
    ops::cross_entropy(ctx, logits, targets.rows(begin, end), losses.rows(begin, end), gradient_scale, true);
    losses_done(losses.rows(begin, end));
    env.backward_done(ctx, "loss", logits);
    linear::backward(ctx, env.engine, head_weight(wb, home_b), n.rows(begin, end), logits,
                     {dres.rows(begin, end), gh.of(head_slot), {}, gh.accumulate || begin > 0});
    env.backward_done(ctx, "lm_head", dres.rows(begin, end));
  });
  ops::rmsnorm_backward(ctx, dres, x, wb.vector(Slot::final_norm), rstd, {}, dres, g.of(Slot::final_norm));
  env.backward_done(ctx, "norm", dres);
  weights.gradients_done(head_unit);
}

void MicroBatch::backward_layer(int unit, const View& x, SavedActivations kept, const View& dres, Recompute recompute) {
  const device::Scope scope(*ctx.arena);
  env.unit = unit;
  if (recompute == Recompute::full) {
    kept = allocate_saved(ctx, env, true);
    const device::Scope again(*ctx.arena);
    const UnitWeights w = weights.unshard(ctx, unit, Pass::recompute);
    LayerEnvironment unobserved = env;
    unobserved.observer = nullptr;
    layer_forward(ctx, unobserved, w, {x}, kept, rows_by_hidden("scratch"), true);
  }
  if (recompute == Recompute::selective) allocate_norms_and_h(ctx, env, kept);
  const UnitWeights w = weights.unshard(ctx, unit, Pass::backward);
  weights.prefetch(unit - 1);
  if (recompute == Recompute::selective) recompute_norms_and_h(ctx, env, w, x, kept);
  const UnitGradients g = weights.gradient_buffers(unit);
  clear_accumulated(ctx, g,
                    {Slot::input_norm, Slot::qkv_bias, Slot::q_norm, Slot::k_norm, Slot::o_bias, Slot::post_norm,
                     Slot::gate_up_bias, Slot::down_bias});
  env.d_out_known = layer_backward(ctx, env, w, g, x, kept, dres);
  weights.gradients_done(unit);
}

void MicroBatch::backward_embedding(const View& dres) {
  const UnitGradients g = weights.gradient_buffers(0);
  if (head_home != 0) clear_accumulated(ctx, g, {Slot::embedding});
  if (!g.of(Slot::embedding).empty())
    ops::embedding_backward(ctx, batch.tokens.reshaped({env.rows()}), dres, g.of(Slot::embedding));
  weights.gradients_done(0);
}

}  // namespace

std::string full_name(const Operation& operation, int layers) {
  std::string name(operation.name);
  if (operation.unit > layers && name != "norm") return name;
  return "model." +
         (operation.unit >= 1 && operation.unit <= layers ? "layers." + std::to_string(operation.unit - 1) + "."
                                                          : std::string()) +
         name;
}

Decoder::Decoder(const hf::ModelConfig& config, const DecoderOptions& options) : config_(config), options_(options) {}

void Decoder::forward(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const Batch& batch,
                      const View& losses) const {
  const device::Scope scope(*ctx.arena);
  MicroBatch pass(ctx, engine, weights, batch, config_, options_);
  pass.make_rope_tables();
  const View x = pass.rows_by_hidden("activations");
  pass.embed(x);
  pass.forward_layers(x, {});
  pass.head_forward(x, losses);
}

void Decoder::forward_and_keep(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const Batch& batch,
                               const View& inputs, const View& losses) const {
  const device::Scope scope(*ctx.arena);
  MicroBatch pass(ctx, engine, weights, batch, config_, options_);
  pass.make_rope_tables();
  const View x = pass.rows_by_hidden("activations");
  pass.embed(x);
  pass.forward_layers(x, {.inputs = inputs});
  ops::copy(ctx, x, pass.input_of(inputs, pass.head_unit - 1));
  pass.head_forward(x, losses);
}

void Decoder::forward_from(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const Batch& batch,
                           int first, const View& inputs, const View& losses) const {
  const device::Scope scope(*ctx.arena);
  MicroBatch pass(ctx, engine, weights, batch, config_, options_);
  pass.make_rope_tables();
  const View x = pass.rows_by_hidden("activations");
  ops::copy(ctx, pass.input_of(inputs, first), x);
  pass.forward_layers(x, {.first = first});
  pass.head_forward(x, losses);
}

void Decoder::forward_backward(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const Batch& batch,
                               float gradient_scale, const View& losses) const {
  const device::Scope scope(*ctx.arena);
  MicroBatch pass(ctx, engine, weights, batch, config_, options_);
  pass.make_rope_tables();
  const int layers = static_cast<int>(config_.num_hidden_layers);
  const View dres = pass.rows_by_hidden("activations");
  std::vector<View> x{pass.rows_by_hidden("activations")};  // x[i]: input of layer i + 1
  std::vector<SavedActivations> kept;
  std::vector<std::size_t> marks;
  pass.embed(x[0]);
  LayerInput in{x[0]};
  for (int i = 0; i < layers; ++i) {
    marks.push_back(ctx.arena->mark());
    x.push_back(pass.rows_by_hidden("activations"));
    const bool full = options_.recompute == Recompute::full;
    const std::size_t before = ctx.arena->mark();
    kept.push_back(allocate_saved(ctx, pass.env, options_.recompute == Recompute::none));
    const device::Scope scratch(*ctx.arena);
    SavedActivations inside = kept.back();
    if (options_.recompute != Recompute::none) allocate_norms_and_h(ctx, pass.env, inside);
    if (full) inside.mid = x.back();  // which the next layer needs
    pass.forward_layer(i + 1, in, inside, dres);
    in = {x.back(), inside.mid, dres};
    if (full) ctx.arena->release(before);
  }
  complete_input(ctx, pass.env, layers, in);
  pass.head_forward_backward(x.back(), losses, gradient_scale, dres);
  for (int i = layers - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    pass.backward_layer(i + 1, x[at], kept[at], dres, options_.recompute);
    ctx.arena->release(marks[at]);
  }
  pass.backward_embedding(dres);
}

void Decoder::logits(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const Batch& batch,
                     std::int64_t first, const View& out) const {
  const device::Scope scope(*ctx.arena);
  MicroBatch pass(ctx, engine, weights, batch, config_, options_);
  pass.make_rope_tables();
  const View x = pass.rows_by_hidden("activations"), rstd = allocate(ctx, DType::f32, {out.shape[0]}, "activations");
  pass.embed(x);
  pass.forward_layers(x, {});
  const UnitWeights w = weights.unshard(ctx, pass.head_unit, Pass::forward), home = pass.unshard_home(Pass::forward);
  const View wanted = x.rows(first, first + out.shape[0]);
  pass.final_norm(w, wanted, wanted, rstd);
  linear::forward(ctx, engine, pass.head_weight(w, home), wanted, out);
}

void Decoder::extend(const Context& ctx, gemm::Engine& engine, WeightSource& weights, const View& tokens,
                     KeyValueCache& cache, const View& logits) const {
  const std::int64_t count = tokens.size(), first = cache.length(), wanted = logits.empty() ? 0 : logits.shape[0];
  if (count < 1 || count > cache.capacity() - first)
    throw Error("generation: " + std::to_string(first) + " tokens and " + std::to_string(count) + " more, of at most " +
                std::to_string(cache.capacity()));
  const device::Scope scope(*ctx.arena);
  const Batch batch{tokens, {}, 1, count};
  MicroBatch pass(ctx, engine, weights, batch, config_, options_);
  pass.env.first = first;
  pass.env.cos = cache.cos_.rows(first, first + count);
  pass.env.sin = cache.sin_.rows(first, first + count);
  const View x = pass.rows_by_hidden("activations"), rstd = allocate(ctx, DType::f32, {count}, "activations");
  pass.embed(x);
  pass.forward_layers(x, {.caches = cache.layers_});
  cache.length_ = first + count;
  if (wanted == 0) return;
  const UnitWeights w = weights.unshard(ctx, pass.head_unit, Pass::forward), home = pass.unshard_home(Pass::forward);
  const View last = x.rows(count - wanted, count);
  pass.final_norm(w, last, last, rstd.rows(0, wanted));
  linear::forward(ctx, engine, pass.head_weight(w, home), last, logits);
}

std::int64_t head_block_rows(std::int64_t rows, std::int64_t vocabulary, DType activation, std::int64_t logit_bytes) {
  const std::int64_t fit = logit_bytes / (vocabulary * static_cast<std::int64_t>(dtype::size_of(activation)));
  const std::int64_t grain = fit < 256 ? 16 : 256, most = std::max<std::int64_t>(16, fit / grain * grain);
  const std::int64_t blocks = divide_up(rows, most);
  return blocks <= 1 ? rows : round_up(divide_up(rows, blocks), grain);
}

gemm::Count planned_fp8(const hf::ModelConfig& config, const std::vector<Parameter>& table, const quant::Recipe& recipe,
                        std::int64_t rows, const DecoderOptions& options, bool backward) {
  gemm::Count total;
  const auto add = [&total](const Parameter& p, const gemm::Count& c) {
    total.gemms += p.fused ? 0 : c.gemms;
    total.flops += c.flops;
  };
  const std::int64_t block = head_block_rows(rows, config.vocab_size, options.activation, options.logit_bytes);
  for (const Parameter& p : table) {
    if (!p.fp8) continue;
    const quant::GemmSet gemms{p.gemms.forward, p.gemms.dgrad, p.gemms.wgrad && p.trainable};
    const std::vector<linear::Part> part{{0, p.rows(), true, gemms}};
    if (p.role == ParameterRole::head) {
      for (std::int64_t begin = 0; begin < rows; begin += block) {
        add(p, linear::planned_fp8(part, p.cols(), recipe, std::min(block, rows - begin), backward));
      }
      continue;
    }
    add(p, linear::planned_fp8(part, p.cols(), recipe, rows, backward));
    if (backward && options.recompute == Recompute::full && p.slot != Slot::down)
      add(p, linear::planned_fp8(part, p.cols(), recipe, rows, false));
  }
  return total;
}

}  // namespace fp8::model
