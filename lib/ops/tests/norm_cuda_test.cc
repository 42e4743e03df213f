// The kernels of RMSNorm on the host, thread by thread, compared with the host's loops.
#include "cuda.h"
#include "far_rows.h"
#include "norm_cases.h"
#include "shim_device.h"

namespace fp8::ops {
namespace {

struct ShimNorm : ShimMemory {
  void rmsnorm_forward(const View& x, const View& w, float eps, const View& y, const View& rstd,
                       const Amax& amax = {}) {
    cuda::norm_forward(context, "norm", {x, {}, w, eps, x, y, rstd, amax});
  }
  void add_rmsnorm_forward(const AddNorm& norm) { cuda::norm_forward(context, "norm", norm); }
  void rmsnorm_backward(const NormGradient& norm) {
    const std::int64_t n = norm.weight.shape[0], rows = n == 0 ? 0 : norm.x.size() / n;
    const View partial = norm.dweight.empty() ? View{} : scratch(DType::f32, {cuda::norm_blocks(rows, n), n});
    cuda::norm_backward(context, norm, partial);
  }
};

TEST(NormCuda, ForwardEqualsTheHosts) {
  ShimNorm device;
  cases::norm_forward(device);
}
TEST(NormCuda, AdditionAndForwardEqualTheHosts) {
  ShimNorm device;
  cases::add_norm_forward(device);
}
TEST(NormCuda, BackwardEqualsTheHosts) {
  ShimNorm device;
  cases::norm_backward(device);
}
TEST(NormCuda, HeadsOfAProjectionEqualTheHosts) {
  ShimNorm device;
  cases::norm_of_heads(device);
}

TEST(NormCuda, AmaxesEqualTheHosts) {
  ShimNorm device;
  cases::norm_amaxes(device);
}

TEST(NormCuda, MaximaInEveryGroupOfARow) {
  ShimNorm device;
  cases::norm_maxima(device);
}

TEST(NormCuda, RowsFarApartEqualTheHosts) {
  ShimNorm device;
  const Host host;
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::int64_t m = 5, n = 264;
    const cases::Matrix x(type, m, n, cases::Layout::contiguous, 1), dy(type, m, n, cases::Layout::contiguous, 2);
    const test::FarRows far_x(type, m, n), far_y(type, m, n), far_dy(type, m, n), far_dx(type, m, n);
    far_x.put(x.view);
    far_dy.put(dy.view);
    const Tensor w = make(type, {n}, random_values(n, 3)), rstd(DType::f32, {m}), y(type, {m, n}), dx(type, {m, n}),
                 far_rstd(DType::f32, {m}), got(type, {m, n});
    rmsnorm_forward(host, x.view, w.view(), cases::kNormEps, y.view(), rstd.view());
    rmsnorm_backward(host, {dy.view, x.view, w.view(), rstd.view(), {}, dx.view(), {}});
    device.rmsnorm_forward(far_x.view, w.view(), cases::kNormEps, far_y.view, far_rstd.view());
    device.rmsnorm_backward({far_dy.view, far_x.view, w.view(), far_rstd.view(), {}, far_dx.view, {}});
    far_y.get(got.view());
    cases::expect_same(device, got.view(), y.view(), cases::rounding(type), "y");
    far_dx.get(got.view());
    cases::expect_same(device, got.view(), dx.view(), cases::rounding(type), "dx");
  }
}

TEST(NormCuda, ManyRowsAreSummedInBlocks) {
  ShimNorm device;
  const Host host;
  const std::int64_t m = 1500, n = 264;
  const cases::Matrix x(DType::bf16, m, n, cases::Layout::wide, 1), dy(DType::bf16, m, n, cases::Layout::contiguous, 2);
  const Tensor w = make(DType::bf16, {n}, random_values(n, 3)), rstd(DType::f32, {m}), dw(DType::f32, {n}),
               dx(DType::bf16, {m, n});
  rmsnorm_forward(host, x.view, w.view(), cases::kNormEps, dx.view(), rstd.view());
  EXPECT_GT(cuda::norm_blocks(m, n), 5);
  const View tdw = device.put(dw.view()), tdx = device.put(dx.view());
  device.rmsnorm_backward(
      {device.put(dy.view), device.put(x.view), device.put(w.view()), device.put(rstd.view()), {}, tdx, tdw});
  rmsnorm_backward(host, {dy.view, x.view, w.view(), rstd.view(), {}, dx.view(), dw.view()});
  cases::expect_same(device, tdx, dx.view(), 0x1p-7, "dx");
  cases::expect_same(device, tdw, dw.view(), 1e-6, "dweight");
}

TEST(NormCuda, NaNAffectsItsRowOnly) {
  ShimNorm device;
  const Host host;
  const std::int64_t m = 3, n = 600;
  const cases::Matrix x(DType::f32, m, n, cases::Layout::contiguous, 1);
  x.whole.as<float>()[n + 7] = std::nanf("");
  const Tensor w = make(DType::f32, {n}, random_values(n, 3)), rstd(DType::f32, {m}), y(DType::f32, {m, n});
  const View ty = device.put(y.view()), tr = device.put(rstd.view());
  device.rmsnorm_forward(device.put(x.view), device.put(w.view()), cases::kNormEps, ty, tr);
  rmsnorm_forward(host, x.view, w.view(), cases::kNormEps, y.view(), rstd.view());
  cases::expect_same(device, ty, y.view(), 2e-6, "y");
  EXPECT_TRUE(std::isnan(read(y.view())[static_cast<std::size_t>(n)]));
}

}  // namespace
}  // namespace fp8::ops
