// RMSNorm compared with f64 and central differences; addition and conversion of views.
#include "fp8/ops/norm.h"

#include <gtest/gtest.h>

#include "reference.h"

namespace fp8::ops {
namespace {

constexpr float kEps = 0x1p-17f;

// weight * x / rms(x) for rows of n elements.
Values naive_norm(const Values& x, const Values& weight, double eps) {
  const std::size_t n = weight.size();
  Values y(x.size());
  for (std::size_t row = 0; row < x.size(); row += n) {
    double sum = 0;
    for (std::size_t c = 0; c < n; ++c) sum += x[row + c] * x[row + c];
    const double r = 1 / std::sqrt(sum / static_cast<double>(n) + eps);
    for (std::size_t c = 0; c < n; ++c) y[row + c] = x[row + c] * r * weight[c];
  }
  return y;
}

struct Case {
  std::int64_t rows, columns;
};
const Case kCases[] = {{1, 1}, {3, 2}, {5, 17}, {33, 96}, {200, 257}};

TEST(RmsNorm, AgreesWithF64) {
  Host host;
  for (const auto [m, n] : kCases) {
    const Values x = random_values(m * n, 1, 3), w = random_values(n, 2);
    const Values want = naive_norm(x, w, kEps);
    for (const DType type : {DType::f32, DType::bf16}) {
      const Tensor tx = make(type, {m, n}, x), tw = make(type, {n}, w), y(type, {m, n}), rstd(DType::f32, {m});
      rmsnorm_forward(host, tx.view(), tw.view(), kEps, y.view(), rstd.view());
      EXPECT_LT(relative_error(read(y.view()), want), type == DType::f32 ? 3e-7 : 5e-3) << m << " x " << n;
    }
  }
}

TEST(RmsNorm, RoundsBeforeTheWeight) {
  Host host;
  // x / rms = 1.5 / sqrt((1.5^2 + 1) / 2) = 1.1767 -> bf16 1.1796875 -> times 2.5, 2.953125 in bf16. Rounded only
  // once: 2.9375.
  const Tensor x = make(DType::bf16, {1, 2}, {1.5, 1.0}), w = make(DType::bf16, {2}, {2.5, 1.0});
  const Tensor y(DType::bf16, {1, 2}), rstd(DType::f32, {1});
  rmsnorm_forward(host, x.view(), w.view(), 0.0f, y.view(), rstd.view());
  EXPECT_EQ(read(y.view())[0], 2.953125);
}

TEST(RmsNorm, NormalizesHeadsOfAFusedProjectionInPlace) {
  Host host;
  const std::int64_t m = 7, heads = 3, d = 10;
  const Tensor fused = make(DType::f32, {m, heads + 2, d}, random_values(m * (heads + 2) * d, 3));
  const Values before = read(fused.view()), w = random_values(d, 4);
  const Tensor weight = make(DType::f32, {d}, w), rstd(DType::f32, {m, heads});
  View part = fused.view();
  part.shape[1] = heads;
  const Values want = naive_norm(read(part), w, kEps);
  rmsnorm_forward(host, part, weight.view(), kEps, part, rstd.view());
  EXPECT_LT(relative_error(read(part), want), 3e-7);
  const Values after = read(fused.view());
  const auto stride = static_cast<std::size_t>((heads + 2) * d);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (i % stride >= static_cast<std::size_t>(heads * d)) {
      EXPECT_EQ(after[i], before[i]);
    }
  }
}

TEST(AddRmsNorm, NormalizesTheRoundedSum) {
  Host host;
  const std::int64_t m = 6, n = 33;
  const Values x = random_values(m * n, 5), delta = random_values(m * n, 6, 0.1), w = random_values(n, 7);
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor tx = make(type, {m, n}, x), td = make(type, {m, n}, delta), tw = make(type, {n}, w), y(type, {m, n});
    const Tensor rstd(DType::f32, {m}), only(type, {m, n});
    add_rmsnorm_forward(host, {tx.view(), td.view(), tw.view(), kEps, tx.view(), y.view(), rstd.view()});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto sum = static_cast<float>(x[i] + delta[i]);
      const float want = type == DType::f32 ? sum : dtype::to_float(dtype::to_bf16(sum));
      EXPECT_EQ(read(tx.view())[i], static_cast<double>(want));
    }
    rmsnorm_forward(host, tx.view(), tw.view(), kEps, only.view(), rstd.view());
    EXPECT_EQ(read(y.view()), read(only.view()));
  }
}

TEST(RmsNormBackward, AgreesWithCentralDifferences) {
  Host host;
  for (const auto [m, n] : {Case{3, 2}, Case{5, 17}, Case{70, 6}}) {
    const Values x = random_values(m * n, 8, 2), w = random_values(n, 9), dy = random_values(m * n, 10),
                 up = random_values(m * n, 11);
    const Values numeric_dx = central_differences([&](const Values& v) { return dot(naive_norm(v, w, kEps), dy); }, x);
    const Values numeric_dw = central_differences([&](const Values& v) { return dot(naive_norm(x, v, kEps), dy); }, w);
    for (const DType type : {DType::f32, DType::bf16}) {
      const double tolerance = type == DType::f32 ? 2e-6 : 1e-2;
      const Tensor tx = make(type, {m, n}, x), tw = make(type, {n}, w), tdy = make(type, {m, n}, dy),
                   tup = make(type, {m, n}, up);
      const Tensor y(type, {m, n}), rstd(DType::f32, {m}), dx(type, {m, n}),
          dw = make(DType::f32, {n}, Values(w.size(), 100.0));
      rmsnorm_forward(host, tx.view(), tw.view(), kEps, y.view(), rstd.view());
      rmsnorm_backward(host, {tdy.view(), tx.view(), tw.view(), rstd.view(), View{}, dx.view(), dw.view()});
      EXPECT_LT(relative_error(read(dx.view()), numeric_dx), tolerance) << m << " x " << n;
      Values added = read(dw.view());
      for (double& v : added) v -= 100.0;
      EXPECT_LT(relative_error(added, numeric_dw), type == DType::f32 ? 1e-4 : 1e-2);  // 100 loses digits
      // With the upstream gradient, in place, without the gradient of the weight.
      rmsnorm_backward(host, {tdy.view(), tx.view(), tw.view(), rstd.view(), tup.view(), tup.view(), View{}});
      Values want = numeric_dx;
      for (std::size_t i = 0; i < want.size(); ++i) want[i] += up[i];
      EXPECT_LT(relative_error(read(tup.view()), want), tolerance);
      // In place of dy.
      rmsnorm_backward(host, {tdy.view(), tx.view(), tw.view(), rstd.view(), View{}, tdy.view(), View{}});
      EXPECT_EQ(read(tdy.view()), read(dx.view()));
    }
  }
}

TEST(RmsNormBackward, WorksOnStridedHeads) {
  Host host;
  const std::int64_t m = 5, heads = 2, d = 6;
  const Tensor fused = make(DType::f32, {m, heads + 1, d}, random_values(m * (heads + 1) * d, 12));
  const Tensor grads = make(DType::f32, {m, heads + 1, d}, random_values(m * (heads + 1) * d, 13));
  View x = fused.view(), dy = grads.view();
  x.shape[1] = dy.shape[1] = heads;
  const Values w = random_values(d, 14), up = read(dy), at = read(x);
  const Tensor weight = make(DType::f32, {d}, w), rstd(DType::f32, {m, heads}), y(DType::f32, {m, heads, d}),
               dw(DType::f32, {d});
  rmsnorm_forward(host, x, weight.view(), kEps, y.view(), rstd.view());
  rmsnorm_backward(host, {dy, x, weight.view(), rstd.view(), View{}, dy, dw.view()});
  EXPECT_LT(relative_error(read(dy),
                           central_differences([&](const Values& v) { return dot(naive_norm(v, w, kEps), up); }, at)),
            2e-6);
  EXPECT_LT(relative_error(read(dw.view()),
                           central_differences([&](const Values& v) { return dot(naive_norm(at, v, kEps), up); }, w)),
            2e-6);
}

TEST(RmsNormBackward, DoesNotDependOnThreads) {
  Host host;
  const std::int64_t m = 999, n = 64;
  const Tensor x = make(DType::bf16, {m, n}, random_values(m * n, 15)),
               dy = make(DType::bf16, {m, n}, random_values(m * n, 16));
  const Tensor w = make(DType::bf16, {n}, random_values(n, 17)), y(DType::bf16, {m, n}), rstd(DType::f32, {m});
  const Tensor dx(DType::bf16, {m, n}), dw(DType::f32, {n}), dx1(DType::bf16, {m, n}), dw1(DType::f32, {n});
  rmsnorm_forward(host, x.view(), w.view(), kEps, y.view(), rstd.view());
  rmsnorm_backward(host, {dy.view(), x.view(), w.view(), rstd.view(), View{}, dx.view(), dw.view()});
  on_one_thread([&] {
    rmsnorm_backward(host, {dy.view(), x.view(), w.view(), rstd.view(), View{}, dx1.view(), dw1.view()});
  });
  EXPECT_EQ(read(dx.view()), read(dx1.view()));
  EXPECT_EQ(read(dw.view()), read(dw1.view()));
}

TEST(RmsNormBackward, DryRunAllocatesTheSameScratchAndComputesNothing) {
  Host host;
  const std::int64_t m = 100, n = 8;
  const Tensor x = make(DType::f32, {m, n}, random_values(m * n, 18)), w = make(DType::f32, {n}, random_values(n, 19));
  const Tensor y(DType::f32, {m, n}), rstd(DType::f32, {m}), dx(DType::f32, {m, n}), dw(DType::f32, {n});
  device::Arena planned;
  Context dry;
  dry.arena = &planned;
  dry.dry = true;
  rmsnorm_forward(dry, x.view(), w.view(), kEps, y.view(), rstd.view());
  rmsnorm_backward(dry, {x.view(), x.view(), w.view(), rstd.view(), View{}, dx.view(), dw.view()});
  EXPECT_EQ(read(y.view()), Values(static_cast<std::size_t>(m * n), 0.0));
  rmsnorm_forward(host, x.view(), w.view(), kEps, y.view(), rstd.view());
  rmsnorm_backward(host, {x.view(), x.view(), w.view(), rstd.view(), View{}, dx.view(), dw.view()});
  EXPECT_EQ(planned.peak(), host.arena().peak());
  EXPECT_EQ(host.arena().mark(), 0u);
}

TEST(RmsNorm, Refusals) {
  Host host;
  const Tensor x(DType::f32, {2, 4}), w(DType::f32, {3}), w4(DType::f32, {4}), half(DType::bf16, {2, 4}),
      rstd(DType::f32, {2});
  EXPECT_EQ(error_of([&] { rmsnorm_forward(host, x.view(), w.view(), 0, x.view(), rstd.view()); }),
            "rmsnorm: the weight does not match the activations");
  EXPECT_EQ(error_of([&] { rmsnorm_forward(host, x.view(), w4.view(), 0, half.view(), rstd.view()); }),
            "rmsnorm: activations of different types");
  EXPECT_EQ(error_of([&] { rmsnorm_forward(host, x.view(), w4.view(), 0, x.view(), w.view()); }),
            "rmsnorm: rstd must be float32, one for each row");
  Context cuda = host;
  cuda.device = device::DeviceType::cuda;
  EXPECT_EQ(error_of([&] { rmsnorm_forward(cuda, x.view(), w4.view(), 0, x.view(), rstd.view()); }),
            "rmsnorm: a tensor is not on the context's device");
}

TEST(Add, RoundsOnceAndWorksInPlace) {
  Host host;
  const std::int64_t n = 10001;
  const Values a = random_values(n, 20), b = random_values(n, 21, 0.01);
  const Tensor ta = make(DType::bf16, {n}, a), tb = make(DType::bf16, {n}, b);
  add(host, ta.view(), tb.view(), ta.view());
  const Values got = read(ta.view());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(got[i], static_cast<double>(dtype::to_float(dtype::to_bf16(static_cast<float>(a[i] + b[i])))));
  }
}

TEST(Add, StridedRows) {
  Host host;
  const Tensor wide = make(DType::f32, {3, 5}, {0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24});
  const Tensor out(DType::f32, {3, 2});
  add(host, wide.view().columns(0, 2), wide.view().columns(3, 5), out.view());
  EXPECT_EQ(read(out.view()), (Values{3, 5, 23, 25, 43, 45}));
  EXPECT_EQ(error_of([&] { add(host, wide.view(), wide.view(), out.view()); }), "add: shapes differ");
}

TEST(Copy, ConvertsStridedAndTransposedViews) {
  Host host;
  const Tensor in = make(DType::f32, {2, 3}, {1, 2.00390625, 3, 4, 5, 6}), out(DType::bf16, {3, 2}),
               back(DType::f32, {3, 2});
  copy(host, in.view().transposed(), out.view());
  EXPECT_EQ(read(out.view()), (Values{1, 4, 2, 5, 3, 6}));
  copy(host, out.view(), back.view());
  EXPECT_EQ(read(back.view()), (Values{1, 4, 2, 5, 3, 6}));
  const Tensor narrow(DType::f32, {2, 2});
  copy(host, in.view().columns(1, 3), narrow.view());
  EXPECT_EQ(read(narrow.view()), (Values{2.00390625, 3, 5, 6}));
  EXPECT_EQ(error_of([&] { copy(host, in.view(), narrow.view()); }), "copy: shapes differ");
  const Tensor large = make(DType::f32, {9001}, random_values(9001, 22)), small(DType::bf16, {9001});
  copy(host, large.view(), small.view());
  EXPECT_EQ(read(small.view()), read(large.view()));
}

}  // namespace
}  // namespace fp8::ops
