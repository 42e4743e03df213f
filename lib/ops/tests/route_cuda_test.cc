// Kernels of mixtures of experts, thread by thread, compared with the host's loops.
#include "cuda_shim.h"
//
#include "route.cuh"
#include "route_cases.h"
#include "route_rows.cuh"
#include "shim_device.h"

namespace fp8::ops {
namespace {

struct ShimRoutes : ShimMemory {
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
