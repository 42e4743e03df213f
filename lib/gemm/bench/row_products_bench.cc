// Speed of GEMMs with few rows, as in generation, relative to reading memory: linears of a 124 M parameter model (width
// 768, feed-forward 2048, vocabulary 50304). Each iteration reads another copy of the weight, so that no cache holds
// it. Arguments: rows M, output width N, input width K.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "fp8/gemm/gemm.h"

namespace fp8::gemm {
namespace {

using tensor::Tensor;

constexpr std::int64_t kBytes = std::int64_t{512} << 20;  // of all copies

// Bytes per second of a sum of 512 MiB on all threads, one stream each: the rate that bounds a pass over weights.
void read_memory(benchmark::State& state) {
  constexpr std::int64_t kAhead = 64;  // words that are prefetched before they are read
  const Tensor memory(DType::f32, {kBytes / 4});
  std::memset(memory.view().data, 1, static_cast<std::size_t>(kBytes));  // memory of its own
  const auto* const data = reinterpret_cast<const std::uint64_t*>(memory.view().data);
  for (auto _ : state) {
    std::uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (std::int64_t line = 0; line < kBytes / 64; ++line) {
      __builtin_prefetch(data + line * 8 + kAhead);
      for (std::int64_t i = 0; i < 8; ++i) sum += data[line * 8 + i];
    }
    benchmark::DoNotOptimize(sum);
  }
  state.counters["bytes/s"] =
      benchmark::Counter(static_cast<double>(kBytes), benchmark::Counter::kIsIterationInvariantRate);
}

void row_products(benchmark::State& state, DType type) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const auto bytes = n * k * static_cast<std::int64_t>(size_of(type));
  const std::int64_t copies = std::max<std::int64_t>(1, kBytes / bytes);
  const Tensor x(type, {m, k}), w(type, {copies * n, k}), y(DType::f32, {m, n});
  for (const View& v : {x.view(), w.view()}) std::memset(v.data, 0x3C, v.bytes());  // numbers, in memory of their own
  Engine engine(HostBf16::detect, HostSums::fixed);
  std::int64_t at = 0;
  for (auto _ : state) {
    const View copy = w.view().rows(at * n, (at + 1) * n);
    engine.matmul({}, {x.view(), type, {}}, {copy.transposed(), type, {}}, y.view(), {});
    at = (at + 1) % copies;
  }
  state.counters["bytes/s"] =
      benchmark::Counter(static_cast<double>(bytes), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * static_cast<double>(m * n * k), benchmark::Counter::kIsIterationInvariantRate);
}

void shapes(benchmark::internal::Benchmark* b) {
  for (const std::int64_t m : {1, 8, 64})
    for (const auto& [n, k] :
         {std::pair<std::int64_t, std::int64_t>{2304, 768}, {768, 768}, {4096, 768}, {768, 2048}, {50304, 768}})
      b->Args({m, n, k});
  b->ArgNames({"M", "N", "K"})->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK(read_memory)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(row_products, f32, DType::f32)->Apply(shapes);
BENCHMARK_CAPTURE(row_products, bf16, DType::bf16)->Apply(shapes);

}  // namespace
}  // namespace fp8::gemm
