// Throughput of the optimizer compared with memory bandwidth, measured by a triad. For both, only the bytes that the
// algorithm needs are counted, without cache lines read before a write. Muon's update of a matrix compared with AdamW's
// and with the GEMMs of its FLOPs.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>

#include "fp8/device/device.h"
#include "fp8/optim/muon.h"
#include "fp8/tensor/tensor.h"

namespace fp8::optim {
namespace {

using dtype::DType;
using tensor::Tensor;

constexpr std::int64_t kElements = std::int64_t{1} << 25;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Tensor filled(DType type, float value, std::int64_t n = kElements) {
  Tensor t(type, {n});
#pragma omp parallel for schedule(static) num_threads(device::host_threads())
  for (std::int64_t i = 0; i < n; ++i) {
    if (type == DType::f32) t.as<float>()[i] = value;
    if (type == DType::bf16) t.as<dtype::Bf16>()[i] = dtype::to_bf16(value);
  }
  return t;
}

/// a = b + s c over separate arrays.
class Triad {
 public:
  /// Seconds of one pass.
  double run() const {
    float* a = a_.as<float>();
    const float *b = b_.as<float>(), *c = c_.as<float>();
    const double begin = seconds();
#pragma omp parallel for simd schedule(static) num_threads(device::host_threads())
    for (std::int64_t i = 0; i < kElements; ++i) a[i] = b[i] + 3.0f * c[i];
    benchmark::ClobberMemory();
    return seconds() - begin;
  }

 private:
  Tensor a_ = filled(DType::f32, 0), b_ = filled(DType::f32, 1), c_ = filled(DType::f32, 2);
};

/// Times `work`, which transfers `bytes` of memory per element, alternating with a triad, so that both run under the
/// same conditions; reports the fraction of the triad's bandwidth from the fastest run of each.
template <class Work>
void measure(benchmark::State& state, std::size_t bytes, Work&& work) {
  const Triad triad;
  double fastest = 1e9, fastest_triad = 1e9;
  for (auto _ : state) {
    fastest_triad = std::min(fastest_triad, triad.run());
    const double begin = seconds();
    work();
    const double took = seconds() - begin;
    fastest = std::min(fastest, took);
    state.SetIterationTime(took);
  }
  const double bandwidth = static_cast<double>(bytes) * static_cast<double>(kElements) / fastest;
  const double light = 12.0 * static_cast<double>(kElements) / fastest_triad;
  state.counters["GB/s"] = bandwidth * 1e-9;
  state.counters["triad_GB/s"] = light * 1e-9;
  state.counters["of_triad"] = bandwidth / light;
}

void adamw_block(benchmark::State& state, DType master, DType moments, bool copies) {
  const Tensor p = filled(master, 0.02f), g = filled(DType::f32, 1e-3f), m = filled(moments, 0), v = filled(moments, 0);
  const Tensor compute_weight = filled(DType::bf16, 0), amax(DType::f32, {1});
  const AdamwBlock block{.master = p.view(),
                         .gradient = g.view(),
                         .m = m.view(),
                         .v = v.view(),
                         .compute_weight = copies ? compute_weight.view() : View{},
                         .amax = amax.view(),
                         .decay = true};
  const Settings settings;
  const Gate gate;
  std::int64_t t = 0;
  const std::size_t stored = size_of(master) + 2 * size_of(moments);
  measure(state, 2 * stored + sizeof(float) + (copies ? 2 : 0),
          [&] { adamw({}, block, settings, scalars_of(settings, ++t, 1e-3, 0, &gate)); });
}

void squares(benchmark::State& state) {
  const Tensor x = filled(DType::f32, 1);
  double total = 0;
  measure(state, sizeof(float), [&] { add_squares({}, x.view(), &total); });
  benchmark::DoNotOptimize(total);
}

/// Times Muon's update of a matrix [rows, columns] in bf16, alternating with AdamW's of as many elements and with one
/// GEMM. Reports from the fastest run of each how many times as long Muon's update takes as AdamW's, and the rate of
/// orthogonalization_flops() relative to the GEMM's.
void muon_matrix(benchmark::State& state) {
  const std::int64_t rows = state.range(0), columns = state.range(1), n = rows * columns,
                     side = std::min(rows, columns);
  const auto of = [&](DType type, float value) { return filled(type, value, n); };
  const Tensor p = of(DType::f32, 0.02f), g = of(DType::f32, 1e-3f), m = of(DType::f32, 0), v = of(DType::f32, 0),
               weight = of(DType::bf16, 0), direction = of(DType::bf16, 0), sums(DType::f32, {side, side});
  for (std::int64_t i = 0; i < n; ++i) g.as<float>()[i] = static_cast<float>(i * 7919 % 1009 - 504);
  device::Arena arena(static_cast<std::size_t>(n) * 32 + (std::size_t{1} << 20), device::DeviceType::host);
  Context ctx;
  ctx.arena = &arena;
  gemm::Engine engine;
  const Settings settings;
  const Gate gate;
  const View matrix = direction.view().reshaped({rows, columns});
  const View wide = rows > columns ? matrix.transposed() : matrix;
  double muon_s = 1e9, adamw_s = 1e9, gemm_s = 1e9;
  std::int64_t t = 0;
  for (auto _ : state) {
    const Scalars scalars = scalars_of(settings, ++t, 1e-3, 0, &gate);
    const double begin = seconds();
    momentum(ctx, {g.view(), m.view(), direction.view()}, scalars);
    orthogonalize(ctx, engine, matrix);
    muon(ctx, {p.view(), direction.view(), weight.view(), {}, rows, columns, true}, settings, scalars);
    const double after_muon = seconds();
    adamw(ctx, {p.view(), g.view(), m.view(), v.view(), weight.view(), {}, true}, settings, scalars);
    const double after_adamw = seconds();
    engine.matmul(ctx, {wide, DType::bf16, {}}, {wide.transposed(), DType::bf16, {}}, sums.view(), {});
    gemm_s = std::min(gemm_s, seconds() - after_adamw);
    adamw_s = std::min(adamw_s, after_adamw - after_muon);
    muon_s = std::min(muon_s, after_muon - begin);
    state.SetIterationTime(after_muon - begin);
  }
  const double gemm_flops = 2.0 * static_cast<double>(side * n);
  state.counters["of_adamw"] = muon_s / adamw_s;
  state.counters["of_gemm"] = orthogonalization_flops(rows, columns) / muon_s / (gemm_flops / gemm_s);
  state.counters["gemm_GFLOPs"] = gemm_flops / gemm_s * 1e-9;
}

BENCHMARK_CAPTURE(adamw_block, f32_and_bf16_copy, DType::f32, DType::f32, true)->UseManualTime();
BENCHMARK_CAPTURE(adamw_block, f32, DType::f32, DType::f32, false)->UseManualTime();
BENCHMARK_CAPTURE(adamw_block, f32_with_bf16_moments_and_copy, DType::f32, DType::bf16, true)->UseManualTime();
BENCHMARK_CAPTURE(adamw_block, bf16_with_bf16_moments, DType::bf16, DType::bf16, false)->UseManualTime();
BENCHMARK(squares)->UseManualTime();
BENCHMARK(muon_matrix)->Args({768, 768})->Args({2048, 768})->Args({768, 2048})->UseManualTime();

}  // namespace
}  // namespace fp8::optim

BENCHMARK_MAIN();
