/// References for the decoder's tests: the model in double precision, in the simplest form (whole logits, all attention
/// scores), and parameters in memory behind the decoder's ParameterAccess.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/device/philox.h"
#include "fp8/dtype/element.h"
#include "fp8/model/decoder.h"
#include "fp8/ops/elementwise.h"

namespace fp8::model::reference {

using dtype::DType;
using tensor::Tensor;

/// A small model with grouped heads.
inline hf::ModelConfig small_config() {
  hf::ModelConfig c;
  c.vocab_size = 20;
  c.hidden_size = 16;
  c.intermediate_size = 16;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 4;
  c.rms_norm_eps = 1e-5;
  c.rope.theta = 100;
  return c;
}

/// Elements of one tensor, row-major.
using Values = std::vector<double>;
/// Tensors by name.
using Tensors = std::map<std::string, Values>;

/// Sequences of equal length.
struct Text {
  std::vector<std::int32_t> tokens, targets;  ///< [sequences, length]
  std::int64_t sequences, length;

  /// Views for the decoder (read-only).
  Batch batch() {
    const auto view = [this](std::vector<std::int32_t>& v) {
      return tensor::make_view(v.data(), DType::i32, device::DeviceType::host, {sequences, length});
    };
    return {view(tokens), view(targets), sequences, length};
  }
};

/// Text of a fixed pattern over `vocabulary` ids; its second target has no loss.
inline Text some_text(std::int64_t sequences, std::int64_t length, std::int64_t vocabulary, std::uint64_t seed) {
  Text text{{}, {}, sequences, length};
  for (std::int64_t i = 0; i < sequences * length; ++i) {
    const auto words = device::philox(seed, static_cast<std::uint64_t>(i), 7);
    text.tokens.push_back(static_cast<std::int32_t>(words[0] % static_cast<std::uint64_t>(vocabulary)));
    text.targets.push_back(static_cast<std::int32_t>(words[1] % static_cast<std::uint64_t>(vocabulary)));
  }
  text.targets[1] = kIgnoredTarget;
  return text;
}

/// Random parameters: matrices and biases around 0, norms around 1. Every value is a bf16 value.
inline Tensors some_weights(const std::vector<Parameter>& table) {
  Tensors weights;
  for (std::size_t p = 0; p < table.size(); ++p) {
    Values& v = weights[table[p].name];
    const double center = table[p].role == ParameterRole::norm ? 1 : 0;
    const double spread = table[p].matmul() ? 1.2 / std::sqrt(static_cast<double>(table[p].cols())) : 0.4;
    for (std::int64_t i = 0; i < table[p].size(); ++i) {
      const auto word = device::philox(p + 1, static_cast<std::uint64_t>(i), 3)[0];
      const double x = center + spread * (2 * static_cast<double>(device::unit_interval(word)) - 1);
      v.push_back(static_cast<double>(dtype::to_float(dtype::to_bf16(static_cast<float>(x)))));
    }
  }
  return weights;
}

/// The decoder in double precision.
class ReferenceDecoder {
 public:
  /// A model with these weights.
  ReferenceDecoder(const hf::ModelConfig& config, Tensors of)
      : weights(std::move(of)), c_(config), frequencies_(hf::rope_inv_freq(config)) {}

  /// Logits [B T, V].
  Values logits(const Text& text) const {
    Values out;
    for (std::int64_t b = 0; b < text.sequences; ++b) {
      const Values one = sequence(text.tokens.data() + b * text.length, text.length);
      out.insert(out.end(), one.begin(), one.end());
    }
    return out;
  }
  /// Cross entropy of every target, 0 where ignored.
  Values losses(const Text& text) const {
    const Values all = logits(text);
    Values out;
    for (std::size_t i = 0; i < text.targets.size(); ++i) {
      const double* row = all.data() + i * static_cast<std::size_t>(c_.vocab_size);
      double sum = 0;
      for (std::int64_t v = 0; v < c_.vocab_size; ++v) sum += std::exp(row[v]);
      out.push_back(text.targets[i] < 0 ? 0 : std::log(sum) - row[text.targets[i]]);
    }
    return out;
  }

  Tensors weights;  ///< weights by name on disk

 private:
  const Values* find(const std::string& name) const {
    const auto at = weights.find(name);
    return at == weights.end() ? nullptr : &at->second;
  }

  // y = x w^T + bias, if there is one.
  Values linear(const Values& x, std::int64_t rows, const std::string& name) const {
    const Values& w = weights.at(name + ".weight");
    const Values* bias = find(name + ".bias");
    const std::size_t m = static_cast<std::size_t>(rows), k = x.size() / m, n = w.size() / k;
    Values y(m * n);
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double sum = bias != nullptr ? (*bias)[j] : 0;
        const double* const row = x.data() + i * k;  // elements of vectors are calls without optimization
        const double* const weight = w.data() + j * k;
        for (std::size_t l = 0; l < k; ++l) sum += row[l] * weight[l];
        y[i * n + j] = sum;
      }
    return y;
  }

  // Normalizes each consecutive group of as many elements as the weight has.
  Values norm(Values x, const std::string& name) const {
    const Values& w = weights.at(name + ".weight");
    for (std::size_t i = 0; i < x.size(); i += w.size()) {
      double squares = 0;
      for (std::size_t j = 0; j < w.size(); ++j) squares += x[i + j] * x[i + j];
      const double mean = squares / static_cast<double>(w.size());
      const double r = 1 / std::sqrt(mean + static_cast<double>(static_cast<float>(c_.rms_norm_eps)));
      for (std::size_t j = 0; j < w.size(); ++j) x[i + j] *= r * w[j];
    }
    return x;
  }

  // Rotates the halves of every head.
  Values rope(Values x, std::int64_t length) const {
    const std::size_t half = frequencies_.size(), width = x.size() / static_cast<std::size_t>(length);
    for (std::size_t at = 0; at < x.size(); at += 2 * half)
      for (std::size_t j = 0; j < half; ++j) {
        const double angle = static_cast<double>(at / width) * frequencies_[j];
        const double a = x[at + j], b = x[at + half + j];
        x[at + j] = a * std::cos(angle) - b * std::sin(angle);
        x[at + half + j] = b * std::cos(angle) + a * std::sin(angle);
      }
    return x;
  }

  Values attention(const Values& q, const Values& k, const Values& v, std::int64_t length) const {
    const auto d = static_cast<std::size_t>(c_.head_dim), heads = static_cast<std::size_t>(c_.num_attention_heads);
    const std::size_t group = heads / static_cast<std::size_t>(c_.num_key_value_heads), kv = heads / group;
    Values out(q.size(), 0.0), p(static_cast<std::size_t>(length));
    for (std::size_t t = 0; t < p.size(); ++t)
      for (std::size_t h = 0; h < heads; ++h) {
        double sum = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (std::size_t j = 0; j < d; ++j) score += q[(t * heads + h) * d + j] * k[(s * kv + h / group) * d + j];
          p[s] = std::exp(score / std::sqrt(static_cast<double>(d)));
          sum += p[s];
        }
        for (std::size_t s = 0; s <= t; ++s)
          for (std::size_t j = 0; j < d; ++j)
            out[(t * heads + h) * d + j] += p[s] / sum * v[(s * kv + h / group) * d + j];
      }
    return out;
  }

  static void add(Values& x, const Values& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  void layer(Values& x, std::int64_t length, const std::string& name) const {
    const Values n1 = norm(x, name + "input_layernorm");
    Values q = linear(n1, length, name + "self_attn.q_proj"), k = linear(n1, length, name + "self_attn.k_proj");
    const Values v = linear(n1, length, name + "self_attn.v_proj");
    if (c_.qk_norm) q = norm(q, name + "self_attn.q_norm"), k = norm(k, name + "self_attn.k_norm");
    const Values heads = attention(rope(q, length), rope(k, length), v, length);
    add(x, linear(heads, length, name + "self_attn.o_proj"));
    const Values n2 = norm(x, name + "post_attention_layernorm"), up = linear(n2, length, name + "mlp.up_proj");
    Values h = linear(n2, length, name + "mlp.gate_proj");
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * up[i];
    add(x, linear(h, length, name + "mlp.down_proj"));
  }

  Values sequence(const std::int32_t* tokens, std::int64_t length) const {
    const Values& table = weights.at("model.embed_tokens.weight");
    Values x;
    for (std::int64_t t = 0; t < length; ++t)
      x.insert(x.end(), table.begin() + tokens[t] * c_.hidden_size, table.begin() + (tokens[t] + 1) * c_.hidden_size);
    for (std::int64_t i = 0; i < c_.num_hidden_layers; ++i) layer(x, length, "model.layers." + std::to_string(i) + ".");
    return linear(norm(x, "model.norm"), length, c_.tie_word_embeddings ? "model.embed_tokens" : "lm_head");
  }

  hf::ModelConfig c_;
  Values frequencies_;
};

/// Parameters and gradients in memory, unsharded. Gradients start as NaN: the first writer must overwrite them. Lists
/// the units of the calls.
class MemorySource final : public ParameterAccess {
 public:
  /// In the compute type; empty `weights` means zeros.
  MemorySource(const hf::ModelConfig& config, std::vector<Parameter> parameters, const Tensors& weights, DType compute,
               const linear::LinearPrecision& precision = {})
      : table(std::move(parameters)),
        precision_(precision),
        slots_(static_cast<std::size_t>(config.num_hidden_layers + 2)) {
    std::map<std::pair<int, Slot>, std::int64_t> rows;
    for (const Parameter& p : table) rows[{p.unit, p.slot}] += p.rows();
    for (const Parameter& p : table) {
      Stored& stored = at(p.unit, p.slot);
      const Extent e{rows[{p.unit, p.slot}], p.cols()};
      if (stored.weight.view().empty()) {
        const bool vector = p.shape.size() == 1;
        stored.weight = vector ? Tensor(compute, {e.rows}) : Tensor(compute, {e.rows, e.cols});
        stored.gradient = vector ? Tensor(DType::f32, {e.rows}) : Tensor(DType::f32, {e.rows, e.cols});
        std::fill_n(stored.gradient.as<float>(), weights.empty() ? 0 : e.rows * e.cols,
                    std::numeric_limits<float>::quiet_NaN());
      }
      if (p.matmul() || (config.tie_word_embeddings && p.role == ParameterRole::embedding))
        stored.parts.push_back({p.slot_row, p.slot_row + p.rows(), p.fp8});
      if (!weights.empty()) store(stored.weight.view(), p.slot_row * p.cols(), weights.at(p.name));
    }
  }

  void prefetch(int unit, Pass pass) override {
    if (pass != Pass::recompute) prefetched.push_back(unit);
  }
  UnitWeights unshard(const Context& ctx, int unit, Pass pass) override {
    UnitWeights w;
    for (int s = 0; s < kSlots; ++s) {
      const Stored& stored = at(unit, static_cast<Slot>(s));
      if (stored.weight.view().empty()) continue;
      if (stored.parts.empty() || unit == 0) w.plain[static_cast<std::size_t>(s)] = stored.weight.view();
      if (stored.parts.empty()) continue;
      w.matmul[static_cast<std::size_t>(s)] = linear::prepare(
          ctx, stored.weight.view(), bias_of(unit, static_cast<Slot>(s)), stored.parts, precision_, pass);
    }
    if (pass == Pass::backward && unit > 1)
      w.down_before = linear::needed_amaxes(precision_, at(unit - 1, Slot::down).parts, {});
    return w;
  }
  UnitGradients gradient_buffers(int unit) override {
    UnitGradients g;
    g.accumulate = accumulate;
    for (int s = 0; s < kSlots; ++s)
      g.slot[static_cast<std::size_t>(s)] = at(unit, static_cast<Slot>(s)).gradient.view();
    return g;
  }
  void gradients_done(int unit) override { done.push_back(unit); }

  /// The gradient of a parameter.
  Values gradient(const Parameter& p) {
    const float* g = at(p.unit, p.slot).gradient.as<float>() + p.slot_row * p.cols();
    return {g, g + p.size()};
  }

  std::vector<Parameter> table;       ///< parameters with compute precisions
  bool accumulate = false;            ///< whether the next gradients are added
  std::vector<int> prefetched, done;  ///< units in the order of calls

 private:
  struct Stored {
    Tensor weight, gradient;
    std::vector<linear::Part> parts;
  };
  Stored& at(int unit, Slot slot) { return slots_[static_cast<std::size_t>(unit)][static_cast<std::size_t>(slot)]; }
  View bias_of(int unit, Slot slot) {
    if (slot == Slot::qkv) return at(unit, Slot::qkv_bias).weight.view();
    if (slot == Slot::o) return at(unit, Slot::o_bias).weight.view();
    if (slot == Slot::gate_up) return at(unit, Slot::gate_up_bias).weight.view();
    if (slot == Slot::down) return at(unit, Slot::down_bias).weight.view();
    return {};
  }
  static void store(const View& v, std::int64_t first, const Values& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto x = static_cast<float>(values[i]);
      const auto to = first + static_cast<std::int64_t>(i);
      if (v.dtype == DType::f32) v.as<float>()[to] = x;
      if (v.dtype == DType::bf16) v.as<dtype::Bf16>()[to] = dtype::to_bf16(x);
    }
  }

  linear::LinearPrecision precision_;
  std::vector<std::array<Stored, kSlots>> slots_;
};

/// Losses f32 [M] of a batch, and the gradients of scale * sum(losses) in the source.
inline void train(const Decoder& decoder, const Context& ctx, gemm::Engine& engine, MemorySource& source,
                  const Batch& batch, float scale, const View& losses) {
  MicroBatch m(decoder, ctx, engine, source, batch, PassKind::training);
  m.forward_embedding();
  m.forward_layers(0, decoder.layers());
  m.backward_head(scale, losses);
  m.backward_layers(0, decoder.layers());
  m.backward_embedding();
}

}  // namespace fp8::model::reference
