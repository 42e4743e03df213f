// Kernels of mixtures of experts, thread by thread, compared with the host's loops.
#include "cuda_shim.h"
//
#include "far_rows.h"
#include "grids.h"
#include "route.cuh"
#include "route_cases.h"
#include "route_rows.cuh"
#include "shim_device.h"

namespace fp8::ops {
namespace {

struct ShimRoutes : ShimMemory {
  const shim::Launcher launch;  ///< counts
  void route_forward(const View& logits, const RouteOptions& options, const Routes& routes) {
    const std::int64_t m = logits.shape[0], n = logits.shape[1];
    const Tensor memory = RouteTensors::filled(DType::i32, {cuda::route_blocks(m), n});
    route_forward_cuda(launch, logits, options, routes, put(memory.view()));
  }
  void add_route_sums(const Routes& routes, const View& sums) {
    const Tensor memory(DType::f64, {cuda::route_blocks(routes.experts.shape[0]), sums.shape[0]});
    add_route_sums_cuda(launch, routes, sums, put(memory.view()));
  }
  void route_backward(const View& dweights, const Routes& routes, bool normalize, const BalanceGradients& balance,
                      const View& dlogits) {
    route_backward_cuda(launch, dweights, routes, normalize, balance, dlogits);
  }
  void gather_rows(const View& x, const View& tokens, const View& out) { gather_rows_cuda(launch, x, tokens, out); }
  void combine_rows(const View& y, const Routes& routes, const View& out) {
    add_experts_cuda(launch, "combine", y, routes, routes.weights, {}, out);
  }
  void sum_rows(const View& dx, const Routes& routes, const View& addend, const View& out) {
    add_experts_cuda(launch, "sum", dx, routes, {}, addend, out);
  }
  void combine_rows_backward(const View& dout, const View& y, const Routes& routes, const View& dy,
                             const View& dweights) {
    combine_rows_backward_cuda(launch, dout, y, routes, dy, dweights);
  }
};

// Where only the order of the host's sums counts, the kernels have its bits.
TEST(RouteCuda, RoutesEqualTheHosts) {
  ShimRoutes device;
  cases::routing(device, 0);
}
TEST(RouteCuda, RoutesOfPartOfTheTokensEqualTheHosts) {
  ShimRoutes device;
  cases::routing_of_part(device, 0);
}
TEST(RouteCuda, SumsEqualTheHosts) {
  ShimRoutes device;
  cases::route_sums(device);
}
TEST(RouteCuda, GradientsEqualTheHosts) {
  ShimRoutes device;
  cases::route_gradients(device, 0);
}
TEST(RouteCuda, RowsOfExpertsEqualTheHosts) {
  ShimRoutes device;
  cases::rows_of_experts(device, 0);
}

// The last rows of matrices of more than 2^32 elements.
TEST(RouteCuda, RowsBeyond32Bits) {
  constexpr std::int64_t kRows = std::int64_t{1} << 20, kColumns = 4112, kLast = 32, kUsed = 24;
  shim::Launcher launch;
  launch.last_block_only = true;
  const dim3 rows(1, kRows / kLast), threads(kThreads);
  Tensor order(DType::i32, {kRows});  // row i of the last ones belongs to the token that is as far from the end
  const Tensor weights(DType::f32, {kRows}), dots(DType::f32, {kRows});
  for (std::int64_t i = 0; i < kLast; ++i)
    order.as<std::int32_t>()[kRows - 1 - i] = static_cast<std::int32_t>(kRows - kLast + i);
  std::fill_n(weights.as<float>(), kRows, 0.5f);
  for (const DType type : {DType::f32, DType::bf16})
    with_float_type(type, "rows", [&]<class T>() {
      const Tensor x = make(type, {kLast, kUsed}, random_values(kLast * kUsed, 1)), got(type, {kLast, kUsed});
      const test::FarRows from(type, kRows, kColumns), to(type, kRows, kColumns);
      from.put(x.view());
      const View in = from.view.columns(kColumns - kUsed, kColumns), out = to.view.columns(kColumns - kUsed, kColumns);
      const auto expect_rows = [&](std::int64_t first, const auto& want, const char* what) {
        to.get(got.view());
        for (std::int64_t i = first; i < kLast; ++i)
          for (std::int64_t c = 0; c < kUsed; ++c)
            ASSERT_EQ(to_float(got.as<T>()[i * kUsed + c]), to_float(from_float<T>(want(i, c)))) << what << ' ' << i;
      };
      const auto at = [&](std::int64_t i, std::int64_t c) { return to_float(x.as<T>()[i * kUsed + c]); };
      const auto* const ids = order.as<const std::int32_t>();
      launch("gather", rows, threads, each_kernel<kWide, GatherRows<T>>,
             GatherRows<T>{in.as<const T>(), ids, out.as<T>(), kColumns}, kRows, kUsed, kWide);
      expect_rows(
          0, [&](std::int64_t i, std::int64_t c) { return at(kLast - 1 - i, c); }, "gathered");
      const Tensor addend = make(DType::f32, {kLast, kUsed}, random_values(kLast * kUsed, 2));
      const test::FarRows added(DType::f32, kRows, kColumns);
      added.put(addend.view());
      launch("sum", rows, threads, each_kernel<kWide, AddExperts<T>>,
             AddExperts<T>{in.as<const T>(), ids, nullptr, added.view.as<const float>() + kColumns - kUsed, out.as<T>(),
                           1, kColumns},
             kRows, kUsed, kWide);
      expect_rows(
          0, [&](std::int64_t i, std::int64_t c) { return at(kLast - 1 - i, c) + addend.as<float>()[i * kUsed + c]; },
          "summed");
      launch("weighted", dim3(kRows / 8), threads, weighted_rows_kernel<T, kWide>, from.view.as<const T>(),
             from.view.as<const T>(), weights.as<const float>(), ids, kRows, 1, kColumns, to.view.as<T>(),
             dots.as<float>());
      // The block has the last 8 tokens, whose rows are the first 8 of these.
      to.get(got.view());
      for (std::int64_t i = 0; i < 8; ++i) {
        float dot = 0;
        for (std::int64_t c = 0; c < kUsed; ++c) {
          ASSERT_EQ(to_float(got.as<T>()[i * kUsed + c]), 0.5f * at(kLast - 1 - i, c)) << "weighted " << i;
          dot += at(i, c) * at(kLast - 1 - i, c);
        }
        ASSERT_NEAR(dots.as<float>()[kRows - 1 - i], dot, 1e-5f) << i;
      }
    });
}

// Grids of many tokens, which have more blocks than CUDA allows along y.
TEST(RouteCuda, GridsOfManyTokens) {
  constexpr std::int64_t kTokens = std::int64_t{1} << 20;
  float value = 0;
  std::vector<dim3> grids;
  const test::Grids launch(grids);
  const auto view = [&](DType type, std::int64_t columns) {
    return tensor::make_view(&value, type, device::DeviceType::host, {kTokens, columns});
  };
  const View x = view(DType::f32, 8), pairs = view(DType::f32, 2), ids = view(DType::i32, 2);
  const Routes routes{x, pairs, ids, pairs, ids, ids, ids};
  route_forward_cuda(launch, x, {}, routes, ids.rows(0, cuda::route_blocks(kTokens)));
  route_backward_cuda(launch, pairs, routes, true, {}, x);
  combine_rows_backward_cuda(launch, x, x, routes, x, pairs);
  ASSERT_EQ(grids.size(), 5u);
  EXPECT_GT(grids[3].x, 65535u);
  EXPECT_GT(grids[4].x, 65535u);
}

TEST(RouteCuda, RoutesAndTheirGradientsTakeFewLaunches) {
  ShimRoutes device;
  const RouteProblem p{.m = 100, .e = 8, .k = 2};
  const RouteTensors r(p.m, p.e, p.k);
  const Tensor logits = make(DType::f32, {p.m, p.e}, p.logits()), dweights = make(DType::f32, {p.m, p.k}, Values(200));
  const Routes routes = cases::put_routes(device, r);
  const View x = device.put(logits.view());
  device.route_forward(x, {}, routes);
  EXPECT_EQ(device.launch.launches, 3);
  device.route_backward(device.put(dweights.view()), routes, true, {}, x);
  EXPECT_EQ(device.launch.launches, 4);
}

}  // namespace
}  // namespace fp8::ops
