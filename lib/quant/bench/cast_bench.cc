// Speed of casts relative to memcpy of the same bytes on the same threads: both run alternately, and `of_memcpy` is the
// ratio of their best speeds. Arguments are rows and columns of a bf16 matrix.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "fp8/base/clock.h"
#include "fp8/quant/quantize.h"
#include "fp8/quant/recipe.h"
#include "matrix.h"

namespace fp8::quant {
namespace {

using dtype::DType;

double seconds_of(const auto& work) {
  const Clock::time_point start = Clock::now();
  work();
  return seconds_since(start);
}

// Copies on all threads.
void copy(std::vector<char>& to, const std::vector<char>& from) {
#pragma omp parallel
  {
    const auto n = static_cast<std::size_t>(omp_get_num_threads()), i = static_cast<std::size_t>(omp_get_thread_num());
    const std::size_t begin = from.size() * i / n, end = from.size() * (i + 1) / n;
    std::memcpy(to.data() + begin, from.data() + begin, end - begin);
  }
}

struct Setup {
  explicit Setup(const benchmark::State& state)
      : rows(state.range(0)),
        cols(state.range(1)),
        x(DType::bf16, {rows, cols}),
        arena(static_cast<std::size_t>(rows * cols) * 3 + (1 << 20), device::DeviceType::host) {
    context.arena = &arena;
    auto* const elements = x.as<Bf16>();
    for (std::int64_t i = 0; i < rows * cols; ++i)
      elements[i] = dtype::to_bf16(static_cast<float>(i % 1009 - 504) * (1.0f / 256));
  }
  std::int64_t elements() const { return rows * cols; }

  std::int64_t rows, cols;
  tensor::Tensor x;
  device::Arena arena;
  Context context;
};

// Times work that reads and writes `traffic` bytes in all.
void compare(benchmark::State& state, std::int64_t traffic, const auto& work) {
  std::vector<char> from(static_cast<std::size_t>(traffic / 2), 1), to(from.size());
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    work();
    copy(to, from);
  }
  double fastest = 1e9, fastest_copy = 1e9;
  for (auto _ : state) {
    const double seconds = seconds_of(work);
    state.SetIterationTime(seconds);
    fastest = std::min(fastest, seconds);
    fastest_copy = std::min(fastest_copy, seconds_of([&] { copy(to, from); }));
    benchmark::DoNotOptimize(to.data());
  }
  state.counters["of_memcpy"] = fastest_copy / fastest;
  state.counters["GB/s"] = static_cast<double>(traffic) / fastest * 1e-9;
}

// bf16 to codes stored as bf16, with a given scale: the loop only.
void cast_bf16(benchmark::State& state) {
  Setup setup(state);
  tensor::Tensor codes(DType::bf16, {setup.rows, setup.cols});
  const auto pieces = pieces_of<Bf16>(setup.x.view());
  auto* const out = codes.as<Bf16>();
  compare(state, setup.elements() * 4, [&] {
    benchmark::DoNotOptimize(cast_rows<dtype::E4m3Grid>(pieces, out, [](std::int64_t) { return OneScale{224.0f}; }));
  });
}

void cast_bytes(benchmark::State& state) {
  Setup setup(state);
  tensor::Tensor codes(DType::u8, {setup.rows, setup.cols});
  const float scale = 224.0f;
  CastCounts counts;
  compare(state, setup.elements() * 3,
          [&] { cast_to_bytes(setup.context, setup.x.view(), DType::e4m3, &scale, codes.view(), &counts); });
}

void decode_bytes(benchmark::State& state) {
  Setup setup(state);
  tensor::Tensor codes(DType::u8, {setup.rows, setup.cols}), inverse_scale(DType::f32, {1});
  compare(state, setup.elements() * 3, [&] {
    const device::Scope scope(setup.arena);
    benchmark::DoNotOptimize(from_bytes(setup.context, codes.view(), DType::e4m3, ContractionAxis::last,
                                        inverse_scale.view(), inverse_scale.view()));
  });
}

void amax_tensor(benchmark::State& state) {
  Setup setup(state);
  tensor::Tensor out(DType::f32, {1});
  compare(state, setup.elements() * 2,
          [&] { amax(setup.context, setup.x.view(), Granularity::tensor, ContractionAxis::last, out.view()); });
}

// Amax, scales and cast.
void quantize_all(benchmark::State& state, Granularity granularity, ContractionAxis contract) {
  Setup setup(state);
  const Cast cast{DType::e4m3, granularity};
  compare(state, setup.elements() * 6, [&] {
    const device::Scope scope(setup.arena);
    benchmark::DoNotOptimize(quantize(setup.context, setup.x.view(), cast, contract, {}));
  });
}

// Scales of blocks, folded into the codes.
void quantize_blocks(benchmark::State& state, Granularity granularity, ContractionAxis contract) {
  Setup setup(state);
  const Cast cast{DType::e4m3, granularity};
  compare(state, setup.elements() * 6, [&] {
    const device::Scope scope(setup.arena);
    benchmark::DoNotOptimize(
        quantize(setup.context, setup.x.view(), cast, contract, {.power_of_2 = true, .fold = true}));
  });
}

// Operands of nvfp4 with their amax, random bits by place, and the transform.
void quantize_fp4(benchmark::State& state, const Cast& cast, ContractionAxis contract) {
  Setup setup(state);
  CastOptions options;
  options.random = {.seed = 1, .stream = 2, .rows = setup.rows};
  compare(state, setup.elements() * (cast.hadamard ? 10 : 6), [&] {
    const device::Scope scope(setup.arena);
    benchmark::DoNotOptimize(quantize(setup.context, setup.x.view(), cast, contract, options));
  });
}

void shapes(benchmark::internal::Benchmark* b) {
  // Fits the L2 cache, the L3 cache, neither.
  b->Args({256, 1024})
      ->Args({2048, 2048})
      ->Args({8192, 8192})
      ->Iterations(50)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

BENCHMARK(cast_bf16)->Apply(shapes);
BENCHMARK(cast_bytes)->Apply(shapes);
BENCHMARK(decode_bytes)->Apply(shapes);
BENCHMARK(amax_tensor)->Apply(shapes);
BENCHMARK_CAPTURE(quantize_all, tensor, Granularity::tensor, ContractionAxis::last)->Apply(shapes);
BENCHMARK_CAPTURE(quantize_all, per_row, Granularity::row, ContractionAxis::last)->Apply(shapes);
BENCHMARK_CAPTURE(quantize_all, per_column, Granularity::row, ContractionAxis::first)->Apply(shapes);
BENCHMARK_CAPTURE(quantize_blocks, block1x128_last, Granularity::block1x128, ContractionAxis::last)->Apply(shapes);
BENCHMARK_CAPTURE(quantize_blocks, block1x128_first, Granularity::block1x128, ContractionAxis::first)->Apply(shapes);
BENCHMARK_CAPTURE(quantize_blocks, block128x128, Granularity::block128x128, ContractionAxis::last)->Apply(shapes);
BENCHMARK_CAPTURE(quantize_blocks, row32_last, Granularity::block1x32, ContractionAxis::last)->Apply(shapes);
BENCHMARK_CAPTURE(quantize_blocks, row32_first, Granularity::block1x32, ContractionAxis::first)->Apply(shapes);
BENCHMARK_CAPTURE(quantize_fp4, x, {DType::e2m1, Granularity::block1x16}, ContractionAxis::last)->Apply(shapes);
BENCHMARK_CAPTURE(quantize_fp4, w, {DType::e2m1, Granularity::block16x16}, ContractionAxis::last)->Apply(shapes);
BENCHMARK_CAPTURE(quantize_fp4, dy, {DType::e2m1, Granularity::block1x16, false, true}, ContractionAxis::last)
    ->Apply(shapes);
BENCHMARK_CAPTURE(quantize_fp4, x_turned, {DType::e2m1, Granularity::block1x16, true}, ContractionAxis::first)
    ->Apply(shapes);
BENCHMARK_CAPTURE(quantize_fp4, dy_turned, {DType::e2m1, Granularity::block1x16, true, true}, ContractionAxis::first)
    ->Apply(shapes);

}  // namespace
}  // namespace fp8::quant

BENCHMARK_MAIN();
