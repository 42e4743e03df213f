// Results of matmul compared with plain loops, bit for bit: every layout, format, scale, bias, size and HostBf16.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "matrices.h"
#include "plan.h"

namespace fp8::gemm::testing {
namespace {

constexpr Size kSizes[] = {{1, 1, 1},    {1, 1, 9},    {1, 7, 5},    {5, 1, 3},   {3, 5, 1},      {1, 64, 64},
                           {17, 33, 65}, {64, 48, 16}, {31, 16, 80}, {100, 3, 7}, {128, 96, 130}, {2, 200, 129}};

struct Storage {
  const char* name;
  DType in, out;
  HostBf16 way;
};

class Matmul : public ::testing::TestWithParam<Storage> {
 protected:
  void SetUp() override {
    if (GetParam().way == HostBf16::native && !PlanCache::fast_bf16()) GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  }
  // Runs and compares; the memory around the block of C must be unchanged.
  void check(const Operand& a, const Operand& b, MatmulOptions options, Layout c_layout, const std::string& what) {
    const std::int64_t m = a.matrix.shape[0], n = b.matrix.shape[1];
    Matrix c = integers(GetParam().out, m, n, c_layout, 3);
    const Matrix before = integers(GetParam().out, m, n, c_layout, 3);
    engine_.matmul(Context{}, a, b, c.view, options);
    const auto wrong = first_difference(c.view, expected(a, b, before.view, options));
    EXPECT_FALSE(wrong.has_value()) << what << ": element " << *wrong << " of [" << m << ", " << n << "]";
    if (c_layout != Layout::wide) return;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n + 10; ++j) {
        if (j >= 5 && j < n + 5) continue;
        ASSERT_EQ(get(c.memory.view(), i, j), get(before.memory.view(), i, j)) << what << ": wrote outside of C";
      }
    }
  }
  bool accumulates() const { return GetParam().out == DType::f32; }

  Engine engine_{GetParam().way};
};

TEST_P(Matmul, EveryLayoutAndSize) {
  for (const Size s : kSizes) {
    for (const Layout la : kLayouts) {
      for (const Layout lb : kLayouts) {
        const Matrix a = integers(GetParam().in, s.m, s.k, la, 1), b = integers(GetParam().in, s.k, s.n, lb, 2);
        const std::string what =
            "layouts " + std::to_string(static_cast<int>(la)) + std::to_string(static_cast<int>(lb));
        check(plain(a.view), plain(b.view), {}, Layout::rows, what);
        check(plain(a.view), plain(b.view), {}, Layout::wide, what + " into a block");
        MatmulOptions add;
        add.accumulate = true;
        if (accumulates()) check(plain(a.view), plain(b.view), add, Layout::wide, what + " accumulating");
      }
    }
  }
}

TEST_P(Matmul, EveryCombinationOfScalesBiasAndAccumulation) {
  for (const Size s : {Size{1, 1, 1}, Size{7, 13, 9}, Size{64, 48, 32}, Size{130, 200, 65}}) {
    const Matrix a = integers(GetParam().in, s.m, s.k, Layout::transposed, 1);
    const Matrix b = integers(GetParam().in, s.k, s.n, Layout::transposed_wide, 2);
    const Tensor one_a = odd_scales(1, 1.7f), one_b = odd_scales(1, 0.3f);
    const Tensor rows = odd_scales(s.m, 5.1f), columns = odd_scales(s.n, 0.9f);
    const Tensor bias_f32 = odd_scales(s.n, 2.0f);
    const Matrix bias_bf16 = integers(DType::bf16, 1, s.n, Layout::rows, 9);
    for (const View& scale_a : {View{}, one_a.view(), rows.view()}) {
      for (const View& scale_b : {View{}, one_b.view(), columns.view()}) {
        for (const View& bias : {View{}, bias_f32.view(), bias_bf16.view.reshaped({s.n})}) {
          for (const bool accumulate : {false, true}) {
            if (accumulate && !accumulates()) continue;
            MatmulOptions options;
            options.bias = bias;
            options.accumulate = accumulate;
            const std::string what = "scales " + std::to_string(scale_a.size()) + " " + std::to_string(scale_b.size());
            check({a.view, GetParam().in, scale_a}, {b.view, GetParam().in, scale_b}, options, Layout::wide, what);
          }
        }
      }
    }
  }
}

TEST_P(Matmul, ManyTiles) {
  for (const Size s : {Size{300, 4500, 3}, Size{3, 9001, 2}, Size{9000, 130, 2}}) {
    const Matrix a = integers(GetParam().in, s.m, s.k, Layout::rows, 1);
    const Matrix b = integers(GetParam().in, s.k, s.n, Layout::transposed, 2);
    const Tensor rows = odd_scales(s.m, 5.1f), columns = odd_scales(s.n, 0.9f), bias = odd_scales(s.n, 2.0f);
    MatmulOptions options;
    options.bias = bias.view();
    options.accumulate = accumulates();
    check({a.view, GetParam().in, rows.view()}, {b.view, GetParam().in, columns.view()}, options, Layout::rows,
          "tiles");
  }
}

TEST_P(Matmul, EmptyContraction) {
  const Tensor a(GetParam().in, {3, 0}), b(GetParam().in, {0, 4}), bias = odd_scales(4, 1.5f),
                                                                   one = odd_scales(1, 2.0f);
  check(plain(a.view()), plain(b.view()), {}, Layout::wide, "zeros");
  MatmulOptions options;
  options.bias = bias.view();
  check({a.view(), GetParam().in, one.view()}, plain(b.view()), options, Layout::rows, "bias");
  options.bias = {};
  options.accumulate = accumulates();
  check(plain(a.view()), plain(b.view()), options, Layout::rows, "unchanged");
}

TEST_P(Matmul, EmptyResult) {
  const Tensor a(GetParam().in, {0, 5}), b(GetParam().in, {5, 4}), c(GetParam().out, {0, 4});
  EXPECT_NO_THROW(engine_.matmul(Context{}, plain(a.view()), plain(b.view()), c.view(), {}));
  const Tensor d(GetParam().in, {5, 0}), e(GetParam().out, {4, 0});
  EXPECT_NO_THROW(engine_.matmul(Context{}, plain(b.view().transposed()), plain(d.view()), e.view(), {}));
}

TEST_P(Matmul, ScalesWhoseProductOverflows) {
  const Matrix a = integers(GetParam().in, 8, 16, Layout::rows, 1), b = integers(GetParam().in, 16, 8, Layout::rows, 2);
  for (const auto& [first, second] : {std::pair{0x1p-127f, 0x1p30f},
                                      {1e9f, 0x1p-127f},
                                      {0x1p-100f, 0x1p-40f},
                                      {0x1p-127f, 0x1p-10f},
                                      {0x1p100f, 1e9f}}) {
    Tensor x(DType::f32, {1}), y(DType::f32, {1});
    x.as<float>()[0] = first;
    y.as<float>()[0] = second;
    check({a.view, GetParam().in, x.view()}, {b.view, GetParam().in, y.view()}, {}, Layout::rows, "extreme scales");
  }
  // sum * 2^100 * 2^-100 is exact; a product of scales rounded first is not.
  Tensor rows(DType::f32, {8});
  std::fill_n(rows.as<float>(), 8, 0x1p100f);
  Tensor columns(DType::f32, {8});
  std::fill_n(columns.as<float>(), 8, 0x1p-100f);
  check({a.view, GetParam().in, rows.view()}, {b.view, GetParam().in, columns.view()}, {}, Layout::rows, "cancelling");
}

TEST_P(Matmul, NanAndInfinityReachTheResult) {
  Matrix a = integers(GetParam().in, 4, 8, Layout::rows, 1);
  Tensor b(GetParam().in, {8, 4});
  for (std::int64_t i = 0; i < 32; ++i) set(b.view(), i / 4, i % 4, 1.0f);
  set(a.view, 1, 2, std::numeric_limits<float>::quiet_NaN());
  set(a.view, 2, 3, std::numeric_limits<float>::infinity());
  const Tensor one = odd_scales(1, 3.0f), c(GetParam().out, {4, 4});
  engine_.matmul(Context{}, {a.view, GetParam().in, one.view()}, plain(b.view()), c.view(), {});
  for (std::int64_t j = 0; j < 4; ++j) {
    EXPECT_TRUE(std::isfinite(get(c.view(), 0, j)));
    EXPECT_TRUE(std::isnan(get(c.view(), 1, j)));
    EXPECT_TRUE(std::isinf(get(c.view(), 2, j)));
  }
}

TEST_P(Matmul, SameBitsTwice) {
  // Values whose sums are not exact, so that another order of summation gives other bits.
  const std::int64_t m = 200, n = 300, k = 500;
  Matrix a = integers(GetParam().in, m, k, Layout::rows, 1), b = integers(GetParam().in, k, n, Layout::transposed, 2);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < k; ++j) set(a.view, i, j, get(a.view, i, j) / static_cast<float>(1 + (i * j) % 97));
  }
  const Tensor rows = odd_scales(m, 1.1f);
  for (const View& scale : {View{}, rows.view()}) {
    const Tensor first(GetParam().out, {m, n}), second(GetParam().out, {m, n}), third(GetParam().out, {m, n});
    engine_.matmul(Context{}, {a.view, GetParam().in, scale}, plain(b.view), first.view(), {});
    engine_.matmul(Context{}, {a.view, GetParam().in, scale}, plain(b.view), second.view(), {});
    Engine{GetParam().way}.matmul(Context{}, {a.view, GetParam().in, scale}, plain(b.view), third.view(), {});
    EXPECT_EQ(std::memcmp(first.view().data, second.view().data, first.view().bytes()), 0);
    EXPECT_EQ(std::memcmp(first.view().data, third.view().data, first.view().bytes()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Storages, Matmul,
                         ::testing::Values(Storage{"f32", DType::f32, DType::f32, HostBf16::detect},
                                           Storage{"f32_to_bf16", DType::f32, DType::bf16, HostBf16::detect},
                                           Storage{"bf16", DType::bf16, DType::bf16, HostBf16::native},
                                           Storage{"bf16_to_f32", DType::bf16, DType::f32, HostBf16::native},
                                           Storage{"bf16_upcast", DType::bf16, DType::bf16, HostBf16::upcast},
                                           Storage{"bf16_to_f32_upcast", DType::bf16, DType::f32, HostBf16::upcast}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace fp8::gemm::testing
