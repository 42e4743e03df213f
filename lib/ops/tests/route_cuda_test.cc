// Kernels of mixtures of experts, thread by thread, compared with the host's loops.
#include "cuda.h"
#include "far_rows.h"
#include "fp8/dtype/dispatch.h"
#include "route_cases.h"
#include "shim_device.h"
#include "shim_launches.h"

namespace fp8::ops {
namespace {

struct ShimRoutes : ShimMemory {
  void route_forward(const View& logits, const RouteOptions& options, const Routes& routes) {
    const std::int64_t m = logits.shape[0], n = logits.shape[1];
    const Tensor memory = RouteTensors::filled(DType::i32, {cuda::route_blocks(m), n});
    cuda::route_forward(context, logits, options, routes, put(memory.view()));
  }
  void add_route_sums(const Routes& routes, const View& sums) {
    const Tensor memory(DType::f64, {cuda::route_blocks(routes.experts.shape[0]), sums.shape[0]});
    cuda::add_route_sums(context, routes, sums, put(memory.view()));
  }
  void route_backward(const View& dweights, const Routes& routes, bool normalize, const BalanceGradients& balance,
                      const View& dlogits) {
    cuda::route_backward(context, dweights, routes, normalize, balance, dlogits);
  }
  void gather_rows(const View& x, const View& tokens, const View& out) { cuda::gather_rows(context, x, tokens, out); }
  void combine_rows(const View& y, const Routes& routes, const View& out) {
    cuda::add_experts(context, "combine", y, routes, routes.weights, {}, out);
  }
  void sum_rows(const View& dx, const Routes& routes, const View& addend, const View& out) {
    cuda::add_experts(context, "sum", dx, routes, {}, addend, out);
  }
  void combine_rows_backward(const View& dout, const View& y, const Routes& routes, const View& dy,
                             const View& dweights) {
    cuda::combine_rows_backward(context, dout, y, routes, dy, dweights);
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

// The last eight rows of matrices of more than 2^32 elements. Grids have 65,535 blocks along y, of which each takes
// every 65,535th row: the last eight have these rows.
TEST(RouteCuda, RowsBeyond32Bits) {
  constexpr unsigned kBlocksOfRow = 3;
  constexpr std::int64_t kRows = std::int64_t{65535} * 16, kColumns = 4112, kLast = 8, kUsed = 24;
  ShimRoutes device;
  Tensor order(DType::i32, {kRows});  // row i of the last ones belongs to the token that is as far from the end
  const Tensor weights(DType::f32, {kRows, 1}), dots(DType::f32, {kRows, 1});
  for (std::int64_t i = 0; i < kLast; ++i)
    order.as<std::int32_t>()[kRows - 1 - i] = static_cast<std::int32_t>(kRows - kLast + i);
  std::fill_n(weights.as<float>(), kRows, 0.5f);
  const View ids = order.view();
  const View rows = ids.reshaped({kRows, 1});
  const Routes routes{.probabilities = {},
                      .log_sums = {},
                      .experts = rows,
                      .weights = weights.view(),
                      .rows = rows,
                      .tokens = ids,
                      .counts = {}};
  for (const DType type : {DType::f32, DType::bf16})
    dtype::with_float_type(type, "rows", [&]<class T>() {
      const Tensor x = make(type, {kLast, kUsed}, random_values(kLast * kUsed, 1)), got(type, {kLast, kUsed});
      const test::FarRows from(type, kRows, kColumns), to(type, kRows, kColumns);
      ASSERT_TRUE(to.view.contiguous());
      from.put(x.view());
      const shim::Launches launches(shim::Blocks::last, kLast * kBlocksOfRow);
      const auto at = [&](std::int64_t i, std::int64_t c) { return dtype::to_float(x.as<T>()[i * kUsed + c]); };
      const auto expect_rows = [&](const auto& want, const char* what) {
        ASSERT_EQ(launches.grids().back().x, kBlocksOfRow);
        to.get(got.view());
        for (std::int64_t i = 0; i < kLast; ++i)
          for (std::int64_t c = 0; c < kUsed; ++c)
            ASSERT_EQ(dtype::to_float(got.as<T>()[i * kUsed + c]), dtype::to_float(dtype::from_float<T>(want(i, c))))
                << what << ' ' << i;
      };
      device.gather_rows(from.view, ids, to.view);
      expect_rows([&](std::int64_t i, std::int64_t c) { return at(kLast - 1 - i, c); }, "gathered");
      const Tensor addend = make(DType::f32, {kLast, kUsed}, random_values(kLast * kUsed, 2));
      const test::FarRows added(DType::f32, kRows, kColumns);
      added.put(addend.view());
      device.sum_rows(from.view, routes, added.view, to.view);
      expect_rows(
          [&](std::int64_t i, std::int64_t c) { return at(kLast - 1 - i, c) + addend.as<float>()[i * kUsed + c]; },
          "summed");
      const shim::Launches tokens(shim::Blocks::last);  // a block has eight tokens
      device.combine_rows_backward(from.view, from.view, routes, to.view, dots.view());
      to.get(got.view());
      for (std::int64_t i = 0; i < kLast; ++i) {
        float dot = 0;
        for (std::int64_t c = 0; c < kUsed; ++c) {
          ASSERT_EQ(dtype::to_float(got.as<T>()[i * kUsed + c]), 0.5f * at(kLast - 1 - i, c)) << "weighted " << i;
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
  const shim::Launches launches(shim::Blocks::none);
  const Context context{.device = device::DeviceType::cuda};
  const auto view = [&](DType type, std::int64_t columns) {
    return tensor::make_view(&value, type, device::DeviceType::host, {kTokens, columns});
  };
  const View x = view(DType::f32, 8), pairs = view(DType::f32, 2), ids = view(DType::i32, 2);
  const Routes routes{x, pairs, ids, pairs, ids, ids, ids};
  cuda::route_forward(context, x, {}, routes, ids.rows(0, cuda::route_blocks(kTokens)));
  cuda::route_backward(context, pairs, routes, true, {}, x);
  cuda::combine_rows_backward(context, x, x, routes, x, pairs);
  ASSERT_EQ(launches.grids().size(), 5u);
  EXPECT_GT(launches.grids()[3].x, 65535u);
  EXPECT_GT(launches.grids()[4].x, 65535u);
}

TEST(RouteCuda, RoutesAndTheirGradientsTakeFewLaunches) {
  ShimRoutes device;
  const RouteProblem p{.m = 100, .e = 8, .k = 2};
  const RouteTensors r(p.m, p.e, p.k);
  const Tensor logits = make(DType::f32, {p.m, p.e}, p.logits()), dweights = make(DType::f32, {p.m, p.k}, Values(200));
  const Routes routes = cases::put_routes(device, r);
  const View x = device.put(logits.view());
  const shim::Launches launches;
  device.route_forward(x, {}, routes);
  EXPECT_EQ(launches.grids().size(), 3u);
  device.route_backward(device.put(dweights.view()), routes, true, {}, x);
  EXPECT_EQ(launches.grids().size(), 4u);
}

}  // namespace
}  // namespace fp8::ops
