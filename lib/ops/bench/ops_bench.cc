// Speed of the operations at the sizes of a small model (124 M parameters, 4 sequences of 512). Attention counts the
// FLOPs of unmasked scores: 4 B H D T (T + 1) / 2 forward, 2.5 times as many backward.
#include <benchmark/benchmark.h>

#include <cmath>

#include "fp8/ops/attention.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "fp8/ops/route.h"

namespace fp8::ops {
namespace {

using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;

constexpr std::int64_t kBatch = 4, kPositions = 512, kHeads = 12, kDim = 64, kWidth = kHeads * kDim,
                       kRows = kBatch * kPositions;

// A host context with an arena.
struct Host {
  device::Arena arena{std::size_t{256} << 20, device::DeviceType::host};
  Context context;
  Host() { context.arena = &arena; }
};

Tensor filled(tensor::Shape shape) {
  Tensor t(DType::bf16, shape);
  for (std::int64_t i = 0; i < t.view().size(); ++i) t.as<Bf16>()[i] = dtype::to_bf16(std::sin(static_cast<float>(i)));
  return t;
}

void set_rate(benchmark::State& state, const char* name, double each) {
  state.counters[name] =
      benchmark::Counter(each, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

constexpr double kAttentionFlops = 4.0 * kBatch * kHeads * kDim * kPositions * (kPositions + 1) / 2;

void attention(benchmark::State& state, bool backward) {
  Host host;
  const Tensor q = filled({kBatch, kPositions, kHeads, kDim}), k = filled({kBatch, kPositions, kHeads, kDim});
  const Tensor v = filled({kBatch, kPositions, kHeads, kDim}), out = filled({kBatch, kPositions, kHeads, kDim});
  const Tensor dq = filled({kBatch, kPositions, kHeads, kDim}), dk = filled({kBatch, kPositions, kHeads, kDim});
  const Tensor dv = filled({kBatch, kPositions, kHeads, kDim}), lse(DType::f32, {kBatch, kHeads, kPositions});
  attention_forward(host.context, {q.view(), k.view(), v.view(), 0.125f, {}, out.view(), lse.view()});
  for (auto _ : state) {
    if (backward) {
      attention_backward(host.context, {q.view(),
                                        k.view(),
                                        v.view(),
                                        out.view(),
                                        lse.view(),
                                        q.view(),
                                        0.125f,
                                        {},
                                        dq.view(),
                                        dk.view(),
                                        dv.view()});
    } else {
      attention_forward(host.context, {q.view(), k.view(), v.view(), 0.125f, {}, out.view(), lse.view()});
    }
  }
  set_rate(state, "FLOP/s", kAttentionFlops * (backward ? 2.5 : 1.0));
}

void norm_forward(benchmark::State& state) {
  Host host;
  const Tensor x = filled({kRows, kWidth}), delta = filled({kRows, kWidth}), w = filled({kWidth});
  const Tensor sum = filled({kRows, kWidth}), y = filled({kRows, kWidth}), rstd(DType::f32, {kRows});
  for (auto _ : state) {
    add_rmsnorm_forward(host.context, {x.view(), delta.view(), w.view(), 1e-5f, sum.view(), y.view(), rstd.view()});
  }
  set_rate(state, "bytes/s", 8.0 * kRows * kWidth);
}

void norm_backward(benchmark::State& state) {
  Host host;
  const Tensor x = filled({kRows, kWidth}), dy = filled({kRows, kWidth}), up = filled({kRows, kWidth}),
               w = filled({kWidth});
  const Tensor dx = filled({kRows, kWidth}), rstd(DType::f32, {kRows}), dw(DType::f32, {kWidth});
  for (auto _ : state) {
    rmsnorm_backward(host.context, {dy.view(), x.view(), w.view(), rstd.view(), up.view(), dx.view(), dw.view()});
  }
  set_rate(state, "bytes/s", 8.0 * kRows * kWidth);
}

void swiglu(benchmark::State& state, bool backward) {
  Host host;
  const std::int64_t f = 2048;
  const Tensor x = filled({kRows, 2 * f}), h = filled({kRows, f}), dx = filled({kRows, 2 * f});
  for (auto _ : state) {
    if (backward) {
      swiglu_backward(host.context, h.view(), x.view(), dx.view());
    } else {
      swiglu_forward(host.context, x.view(), h.view());
    }
  }
  set_rate(state, "bytes/s", (backward ? 10.0 : 6.0) * static_cast<double>(kRows * f));
}

void cross_entropy_50304(benchmark::State& state, bool backward) {
  Host host;
  const std::int64_t m = 256, vocabulary = 50304;
  const Tensor x = filled({m, vocabulary}), targets(DType::i32, {m}), losses(DType::f32, {m});
  for (auto _ : state) {
    cross_entropy(host.context, x.view(), targets.view(), losses.view(), 1.0f, backward);
  }
  set_rate(state, "logits/s", static_cast<double>(m * vocabulary));
}

void embedding_gradient(benchmark::State& state) {
  Host host;
  const std::int64_t vocabulary = 50304;
  const Tensor dout = filled({kRows, kWidth}), tokens(DType::i32, {kRows}), dtable(DType::f32, {vocabulary, kWidth});
  for (std::int64_t i = 0; i < kRows; ++i) tokens.as<std::int32_t>()[i] = static_cast<std::int32_t>(i * i % vocabulary);
  for (auto _ : state) embedding_backward(host.context, tokens.view(), dout.view(), dtable.view());
  set_rate(state, "bytes/s", 10.0 * kRows * kWidth);
}

// Routes of `experts` experts, `each` of them for a token, and rows of experts of the width of the model.
struct Experts {
  Host host;
  Tensor logits, probabilities, log_sums, chosen, weights, rows, tokens, counts;
  Routes routes;

  Experts(std::int64_t m, std::int64_t experts, std::int64_t each)
      : logits(DType::f32, {m, experts}),
        probabilities(DType::f32, {m, experts}),
        log_sums(DType::f32, {m}),
        chosen(DType::i32, {m, each}),
        weights(DType::f32, {m, each}),
        rows(DType::i32, {m, each}),
        tokens(DType::i32, {m * each}),
        counts(DType::i32, {experts}),
        routes{probabilities.view(), log_sums.view(), chosen.view(), weights.view(),
               rows.view(),          tokens.view(),   counts.view()} {
    for (std::int64_t i = 0; i < logits.view().size(); ++i)
      logits.as<float>()[i] = std::sin(static_cast<float>(i) * 1.7f);
    route_forward(host.context, logits.view(), {}, routes);
  }
};

void route(benchmark::State& state) {
  const Experts e(state.range(0), state.range(1), state.range(2));
  for (auto _ : state) route_forward(e.host.context, e.logits.view(), {}, e.routes);
  set_rate(state, "tokens/s", static_cast<double>(state.range(0)));
}

void route_gradient(benchmark::State& state) {
  const Experts e(state.range(0), state.range(1), state.range(2));
  for (auto _ : state) route_backward(e.host.context, e.weights.view(), e.routes, true, {}, e.logits.view());
  set_rate(state, "tokens/s", static_cast<double>(state.range(0)));
}

void rows_of_experts(benchmark::State& state, bool backward) {
  const Experts e(kRows, state.range(0), state.range(1));
  const std::int64_t n = e.tokens.view().size();
  const Tensor x = filled({kRows, kWidth}), y = filled({n, kWidth}), addend(DType::f32, {kRows, kWidth});
  for (auto _ : state) {
    if (backward) {
      combine_rows_backward(e.host.context, x.view(), y.view(), e.routes, y.view(), e.weights.view());
      sum_rows(e.host.context, y.view(), e.routes, addend.view(), x.view());
    } else {
      gather_rows(e.host.context, x.view(), e.routes.tokens, y.view());
      combine_rows(e.host.context, y.view(), e.routes, x.view());
    }
  }
  set_rate(state, "B/s", static_cast<double>((backward ? 4 * n + 4 * kRows : 3 * n + 2 * kRows) * kWidth * 2));
}

BENCHMARK_CAPTURE(attention, forward, false)->UseRealTime();
BENCHMARK_CAPTURE(attention, backward, true)->UseRealTime();
BENCHMARK(norm_forward)->UseRealTime();
BENCHMARK(norm_backward)->UseRealTime();
BENCHMARK_CAPTURE(swiglu, forward, false)->UseRealTime();
BENCHMARK_CAPTURE(swiglu, backward, true)->UseRealTime();
BENCHMARK_CAPTURE(cross_entropy_50304, loss, false)->UseRealTime();
BENCHMARK_CAPTURE(cross_entropy_50304, gradient, true)->UseRealTime();
BENCHMARK(embedding_gradient)->UseRealTime();
BENCHMARK(route)->Args({kRows, 8, 2})->Args({kRows, 32, 4})->Args({1 << 16, 128, 8})->UseRealTime();
BENCHMARK(route_gradient)->Args({kRows, 8, 2})->Args({kRows, 32, 4})->Args({1 << 16, 128, 8})->UseRealTime();
BENCHMARK_CAPTURE(rows_of_experts, forward, false)->Args({8, 2})->Args({32, 4})->UseRealTime();
BENCHMARK_CAPTURE(rows_of_experts, backward, true)->Args({8, 2})->Args({32, 4})->UseRealTime();

}  // namespace
}  // namespace fp8::ops

BENCHMARK_MAIN();
