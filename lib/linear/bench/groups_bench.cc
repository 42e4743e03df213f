// Speed of the linears of a mixture's experts, forward and backward with their casts, beside one dense linear of the
// same FLOPs: the fused gate and up projections of 8 experts with 512 rows each, and of 32 experts with 256 rows each
// on average. `even` and `fixed` repeat one division into rows, `uneven` takes another one at every call, as training
// does. FLOP/s are of the three GEMMs over wall time; of repetitions the smallest time is that without other load.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/linear/groups.h"

namespace fp8::linear {
namespace {

using dtype::DType;
using tensor::Tensor;

struct Shape {
  std::int64_t experts, rows, hidden, intermediate;  // rows of each expert on average
};

constexpr Shape kFew{8, 512, 768, 768}, kMany{32, 256, 512, 384};

enum class Division { dense, even, fixed, uneven };

Tensor normal(DType type, std::int64_t rows, std::int64_t columns, float scale) {
  std::mt19937 engine(static_cast<unsigned>(rows * 31 + columns));
  std::normal_distribution<float> values(0, scale);
  Tensor t(type, {rows, columns});
  for (std::int64_t i = 0; i < rows * columns; ++i)
    if (type == DType::f32)
      t.as<float>()[i] = values(engine);
    else
      t.as<dtype::Bf16>()[i] = dtype::to_bf16(values(engine));
  return t;
}

// First rows of groups whose sizes differ as those of experts do, also by more than a factor of ten.
std::vector<std::int64_t> first_rows(const Shape& s, Division division, std::mt19937& engine) {
  std::vector<double> shares(static_cast<std::size_t>(s.experts), 1);
  if (division != Division::even)
    for (double& share : shares) share = std::exp(std::normal_distribution<double>(0, 0.8)(engine));
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::int64_t> first{0};
  double sum = 0;
  for (const double share : shares)
    first.push_back(static_cast<std::int64_t>((sum += share) / all * static_cast<double>(s.experts * s.rows) + 0.5));
  return first;
}

void run(benchmark::State& state, const Shape& shape, std::string_view recipe, Division division) {
  const std::int64_t groups = division == Division::dense ? 1 : shape.experts, m = shape.experts * shape.rows,
                     n = 2 * shape.intermediate, k = shape.hidden;
  const bool fp8 = recipe != "bf16";
  const LinearPrecision precision{fp8 ? &quant::find_recipe(recipe) : nullptr,
                                  {.power_of_2 = fp8 && quant::find_recipe(recipe).power_of_2}};
  device::Arena arena(std::size_t{1} << 30, device::DeviceType::host);
  Context ctx;
  ctx.arena = &arena;
  const Tensor x = normal(DType::bf16, m, k, 1), w = normal(DType::bf16, groups * n, k, 0.02f),
               dy = normal(DType::bf16, m, n, 0.01f), y(DType::bf16, {m, n}), dx(DType::bf16, {m, k}),
               dw(DType::f32, {groups * n, k});
  const std::vector<Part> parts{{0, n / 2, fp8}, {n / 2, n, fp8}};
  gemm::Engine engine;
  std::mt19937 random(7);
  std::vector<std::int64_t> first = first_rows(shape, division, random);
  if (division == Division::dense) first = {0, m};
  const auto pass = [&](Pass which, const auto& compute) {
    const device::Scope scope(arena);
    std::vector<Weight> weights;
    for (std::int64_t g = 0; g < groups; ++g)
      weights.push_back(prepare(ctx, w.view().rows(g * n, (g + 1) * n), {}, parts, precision, which));
    compute(Groups{weights, first});
  };
  const auto step = [&] {
    pass(Pass::forward, [&](const Groups& g) { forward_groups(ctx, engine, g, x.view(), y.view()); });
    pass(Pass::backward, [&](const Groups& g) {
      backward_groups(ctx, engine, g, {x.view()}, dy.view(), {dx.view(), dw.view(), {}, true});
    });
  };
  step();
  for (auto _ : state) {
    if (division == Division::uneven) first = first_rows(shape, division, random);
    step();
  }
  const double flops = 6.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

double smallest(const std::vector<double>& v) { return *std::ranges::min_element(v); }

void options(benchmark::internal::Benchmark* b) {
  b->UseRealTime()->Unit(benchmark::kMillisecond)->ComputeStatistics("min", smallest);
}

#define CASES(shape, recipe)                                                                            \
  BENCHMARK_CAPTURE(run, shape##_##recipe##_dense, k##shape, #recipe, Division::dense)->Apply(options); \
  BENCHMARK_CAPTURE(run, shape##_##recipe##_even, k##shape, #recipe, Division::even)->Apply(options);   \
  BENCHMARK_CAPTURE(run, shape##_##recipe##_fixed, k##shape, #recipe, Division::fixed)->Apply(options); \
  BENCHMARK_CAPTURE(run, shape##_##recipe##_uneven, k##shape, #recipe, Division::uneven)->Apply(options)

CASES(Few, bf16);
CASES(Few, tensorwise);
CASES(Few, rowwise);
CASES(Few, blockwise);
CASES(Many, bf16);
CASES(Many, tensorwise);
CASES(Many, rowwise);
CASES(Many, blockwise);

}  // namespace
}  // namespace fp8::linear

BENCHMARK_MAIN();
