// Speed of FP8 GEMMs with the accumulation of tensor cores, including packing, on one thread for each instruction set.
// FLOP/s are 2 M N K over CPU time. Codes are random and finite.
#include <benchmark/benchmark.h>
#include <omp.h>

#include "fp8/device/philox.h"
#include "fp8/dtype/element.h"
#include "tensor_core.h"

namespace fp8::gemm {
namespace {

using tensor::Tensor;

Tensor codes(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Tensor t(DType::bf16, {rows, columns});
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const auto code = static_cast<std::uint8_t>(device::philox(seed, static_cast<std::uint64_t>(i), 0)[0]);
    t.as<dtype::Bf16>()[i] = dtype::to_bf16(dtype::from_e4m3((code & 0x7F) == 0x7F ? 0 : code));
  }
  return t;
}

// forward: A [M, K], B transposed; fast. wgrad: A transposed, B [K, N]; slow.
void run(benchmark::State& state, Isa isa, bool forward) {
  if (isa > supported_isa()) return state.SkipWithError("this CPU has not these instructions");
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const Tensor a = forward ? codes(m, k, 1) : codes(k, m, 1), b = forward ? codes(n, k, 2) : codes(k, n, 2);
  const Operand left{forward ? a.view() : a.view().transposed(), DType::e4m3, {}};
  const Operand right{forward ? b.view().transposed() : b.view(), DType::e4m3, {}};
  const Tensor c(DType::f32, {m, n});
  MatmulOptions options;
  options.fast_accumulation = forward;
  options.accumulation = Accumulation::hopper;
  omp_set_num_threads(1);
  TensorCoreGemm gemm(tensor_core_kernels(isa));
  gemm.run(false, left, right, c.view(), options);
  for (auto _ : state) gemm.run(false, left, right, c.view(), options);
  const double flop = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  state.counters["FLOP/s"] = benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
}

void shapes(benchmark::internal::Benchmark* b) {
  b->Args({256, 768, 768})->Args({2048, 2048, 768})->ArgNames({"M", "N", "K"})->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(run, hopper_fast_baseline, Isa::baseline, true)->Apply(shapes);
BENCHMARK_CAPTURE(run, hopper_slow_baseline, Isa::baseline, false)->Apply(shapes);
BENCHMARK_CAPTURE(run, hopper_fast_avx512, Isa::avx512, true)->Apply(shapes);
BENCHMARK_CAPTURE(run, hopper_slow_avx512, Isa::avx512, false)->Apply(shapes);
BENCHMARK_CAPTURE(run, hopper_fast_avx512_bf16, Isa::avx512_bf16, true)->Apply(shapes);
BENCHMARK_CAPTURE(run, hopper_slow_avx512_bf16, Isa::avx512_bf16, false)->Apply(shapes);

}  // namespace
}  // namespace fp8::gemm
