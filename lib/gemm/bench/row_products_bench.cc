// Speed of GEMMs with few rows, as in generation, relative to reading memory: linears of a 124 M parameter model (width
// 768, feed-forward 2048, vocabulary 50304). Each iteration reads another copy of the weight, so that no cache holds
// it. Arguments: rows M, output width N, input width K.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "fp8/base/text.h"
#include "fp8/device/device.h"
#include "fp8/gemm/gemm.h"
#include "read_loops.h"

namespace fp8::gemm {
namespace {

using tensor::Tensor;

constexpr std::int64_t kBytes = std::int64_t{512} << 20;  // size of all copies together

// Bytes of read_memory: the variable READ_BYTES, or more than caches hold.
std::int64_t read_bytes() {
  const char* const given = std::getenv("READ_BYTES");  // NOLINT(concurrency-mt-unsafe): no code sets it
  return given != nullptr ? parse_int64(given).value_or(0) : std::int64_t{1} << 30;
}

// Bytes per second of loop state.range(0) over the same bytes again and again, on all threads, as a pass over weights
// for each token reads them: the fastest loop bounds that pass.
void read_memory(benchmark::State& state) {
  const auto read = read_kernels().loops.at(static_cast<std::size_t>(state.range(0)));
  const std::int64_t threads = device::host_threads(),
                     each = read_bytes() / threads / ReadKernels::kBlock * ReadKernels::kBlock;
  if (each <= 0) return state.SkipWithError("READ_BYTES: too few");
  const Tensor memory(DType::f32, {(threads * each + ReadKernels::kAhead) / 4});
  std::memset(memory.view().data, 1, memory.view().bytes());  // memory of its own
  const auto* const data = static_cast<const std::byte*>(memory.view().data);
  for (auto _ : state) {
    std::uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (std::int64_t t = 0; t < threads; ++t)
      sum += read(reinterpret_cast<const std::uint64_t*>(data + t * each), each);
    benchmark::DoNotOptimize(sum);
  }
  state.counters["bytes/s"] =
      benchmark::Counter(static_cast<double>(threads * each), benchmark::Counter::kIsIterationInvariantRate);
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

BENCHMARK(read_memory)->DenseRange(0, 4)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(row_products, f32, DType::f32)->Apply(shapes);
BENCHMARK_CAPTURE(row_products, bf16, DType::bf16)->Apply(shapes);

}  // namespace
}  // namespace fp8::gemm
