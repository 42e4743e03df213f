// Speed of the three GEMMs of linear layers at the shapes of a 124 M parameter model (width 768, feed-forward 2048,
// vocabulary 50304), without casts. Arguments: rows M, output width N, input width K. FLOP/s are 2 M N K over wall
// time.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "fp8/gemm/gemm.h"

namespace fp8::gemm {
namespace {

using tensor::Tensor;

enum class Case { f32, bf16, fp8_tensor, fp8_row };

// Values 1 and 2 in an uneven pattern: exact in every format, no subnormals.
Tensor filled(DType t, std::int64_t rows, std::int64_t columns) {
  Tensor r(t, {rows, columns});
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const bool two = i % 7 == 0;
    if (t == DType::f32) r.as<float>()[i] = two ? 2.0f : 1.0f;
    if (t == DType::bf16) r.as<dtype::Bf16>()[i].bits = two ? 0x4000 : 0x3F80;
  }
  return r;
}

Tensor scales(std::int64_t n) {
  Tensor r(DType::f32, {n});
  std::fill_n(r.as<float>(), n, 0.5f);
  return r;
}

struct Product {
  Case what;
  GemmRole role;
  std::int64_t m, n, k;  // C is [m, n], and k is the contracted extent
  Tensor a, b, c, scale_a, scale_b;
  bool a_transposed = false, b_transposed = false;
};

Product make(Case what, GemmRole role, std::int64_t m, std::int64_t n, std::int64_t k) {
  const DType in = what == Case::f32 ? DType::f32 : DType::bf16;
  const DType out = what == Case::f32 || role == GemmRole::wgrad ? DType::f32 : DType::bf16;
  Product p{what, role, m, n, k, {}, {}, {}, {}, {}};
  if (role == GemmRole::forward)
    p = Product{what, role, m, n, k, filled(in, m, k), filled(in, n, k), {}, {}, {}, false, true};
  if (role == GemmRole::dgrad)
    p = Product{what, role, m, k, n, filled(in, m, n), filled(in, n, k), {}, {}, {}, false, false};
  if (role == GemmRole::wgrad)
    p = Product{what, role, n, k, m, filled(in, m, n), filled(in, m, k), {}, {}, {}, true, false};
  p.c = Tensor(out, {p.m, p.n});
  p.scale_a = scales(what == Case::fp8_row ? p.m : 1);
  p.scale_b = scales(what == Case::fp8_row ? p.n : 1);
  return p;
}

void run(benchmark::State& state, Case what, GemmRole role) {
  const Product p = make(what, role, state.range(0), state.range(1), state.range(2));
  const bool fp8 = what == Case::fp8_tensor || what == Case::fp8_row;
  Operand a{p.a_transposed ? p.a.view().transposed() : p.a.view(), fp8 ? DType::e4m3 : p.a.view().dtype, {}};
  Operand b{p.b_transposed ? p.b.view().transposed() : p.b.view(), fp8 ? DType::e4m3 : p.b.view().dtype, {}};
  if (fp8) a.inverse_scale = p.scale_a.view();
  if (fp8) b.inverse_scale = p.scale_b.view();
  MatmulOptions options;
  options.role = role;
  options.accumulate = role == GemmRole::wgrad;
  Engine engine;
  engine.matmul(Context{}, a, b, p.c.view(), options);
  for (auto _ : state) engine.matmul(Context{}, a, b, p.c.view(), options);
  const double flop = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  state.counters["FLOP/s"] = benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["scratch"] = benchmark::Counter(static_cast<double>(engine.scratch_bytes()),
                                                 benchmark::Counter::kDefaults, benchmark::Counter::kIs1024);
}

void shapes(benchmark::internal::Benchmark* b) {
  for (const std::int64_t m : {256, 2048}) {
    b->Args({m, 2304, 768})->Args({m, 768, 768})->Args({m, 4096, 768})->Args({m, 768, 2048});
  }
  b->Args({2048, 16384, 128});  // the head of a small model: widths of powers of two
  b->Args({256, 50304, 768})->ArgNames({"M", "N", "K"})->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(run, bf16_forward, Case::bf16, GemmRole::forward)->Apply(shapes);
BENCHMARK_CAPTURE(run, bf16_dgrad, Case::bf16, GemmRole::dgrad)->Apply(shapes);
BENCHMARK_CAPTURE(run, bf16_wgrad, Case::bf16, GemmRole::wgrad)->Apply(shapes);
BENCHMARK_CAPTURE(run, fp8_tensor_forward, Case::fp8_tensor, GemmRole::forward)->Apply(shapes);
BENCHMARK_CAPTURE(run, fp8_tensor_dgrad, Case::fp8_tensor, GemmRole::dgrad)->Apply(shapes);
BENCHMARK_CAPTURE(run, fp8_tensor_wgrad, Case::fp8_tensor, GemmRole::wgrad)->Apply(shapes);
BENCHMARK_CAPTURE(run, fp8_row_forward, Case::fp8_row, GemmRole::forward)->Apply(shapes);
BENCHMARK_CAPTURE(run, fp8_row_dgrad, Case::fp8_row, GemmRole::dgrad)->Apply(shapes);
BENCHMARK_CAPTURE(run, fp8_row_wgrad, Case::fp8_row, GemmRole::wgrad)->Apply(shapes);
BENCHMARK_CAPTURE(run, f32_forward, Case::f32, GemmRole::forward)->Apply(shapes);
BENCHMARK_CAPTURE(run, f32_dgrad, Case::f32, GemmRole::dgrad)->Apply(shapes);
BENCHMARK_CAPTURE(run, f32_wgrad, Case::f32, GemmRole::wgrad)->Apply(shapes);

}  // namespace
}  // namespace fp8::gemm

BENCHMARK_MAIN();
