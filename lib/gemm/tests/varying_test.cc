// GEMMs whose number of rows differs from call to call: results bit for bit, few plans, and scratch that the largest
// call bounds.
#include "varying.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "matrices.h"

namespace fp8::gemm::testing {
namespace {

constexpr std::int64_t kN = 48, kK = 32;

struct Way {
  const char* name;
  DType in, out;
  HostBf16 bf16;
};

class VaryingGemm : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam().in == DType::bf16 && GetParam().bf16 == HostBf16::native && !native_host_bf16())
      GTEST_SKIP() << "no bf16 GEMMs under this instruction set";
  }

  // C (+)= A B under VaryingRows against the expected C.
  void check(GemmRole role, std::int64_t rows, bool accumulate, Layout layout) {
    SCOPED_TRACE(std::to_string(static_cast<int>(role)) + " of " + std::to_string(rows) + " rows" +
                 (accumulate ? ", accumulated" : "") + (layout == Layout::wide ? ", wide" : ""));
    const DType in = GetParam().in, out = accumulate ? DType::f32 : GetParam().out;
    const Matrix x = integers(in, rows, kK, layout, 1), w = integers(in, kN, kK, Layout::rows, 2),
                 dy = integers(in, rows, kN, layout, 3);
    const bool wgrad = role == GemmRole::wgrad;
    Operand a = plain(x.view), b = plain(w.view.transposed());
    if (role == GemmRole::dgrad) a = plain(dy.view), b = plain(w.view);
    if (wgrad) a = plain(dy.view.transposed()), b = plain(x.view);
    const Matrix c = integers(out, a.matrix.shape[0], b.matrix.shape[1], wgrad ? Layout::rows : layout, 4);
    const std::vector<float> want = expected(a, b, c.view, {.role = role, .accumulate = accumulate});
    const VaryingRows varying(engine_);
    engine_.matmul(Context{}, a, b, c.view, {.role = role, .accumulate = accumulate});
    EXPECT_FALSE(first_difference(c.view, want).has_value());
  }

  Engine engine_{GetParam().bf16};
};

TEST_P(VaryingGemm, EqualsPlainLoops) {
  for (const std::int64_t rows : {1, 4, 5, 16, 31, 33, 63, 64, 65, 129, 500, 512, 513, 1100})
    for (const GemmRole role : {GemmRole::forward, GemmRole::dgrad, GemmRole::wgrad})
      for (const bool accumulate : {false, true})
        for (const Layout layout : {Layout::rows, Layout::wide}) check(role, rows, accumulate, layout);
}

// What pads an operand is zero even after a call with NaN, and rows of C after the last stay as they are.
TEST_P(VaryingGemm, PaddingHasNoEffect) {
  const DType in = GetParam().in;
  const VaryingRows varying(engine_);
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), 1.0f}) {
    const std::int64_t rows = value == 1.0f ? 5 : 60;
    const Tensor x(in, {rows, kK}), w(in, {kN, kK}), y(DType::f32, {rows + 20, kN}), dw(DType::f32, {kK, kK});
    for (const Tensor* t : {&x, &w})
      for (std::int64_t i = 0; i < t->view().size(); ++i) set(t->view().reshaped({1, t->view().size()}), 0, i, value);
    for (std::int64_t i = 0; i < y.view().size(); ++i) y.as<float>()[i] = -7;
    engine_.matmul(Context{}, plain(x.view()), plain(w.view().transposed()), y.view().rows(0, rows),
                   {.role = GemmRole::forward});
    engine_.matmul(Context{}, plain(x.view().transposed()), plain(x.view()), dw.view(), {.role = GemmRole::wgrad});
    if (value != 1.0f) continue;
    for (std::int64_t i = 0; i < y.view().size(); ++i) ASSERT_EQ(y.as<float>()[i], i < rows * kN ? 32.0f : -7.0f) << i;
    for (std::int64_t i = 0; i < dw.view().size(); ++i) ASSERT_EQ(dw.as<float>()[i], 5.0f) << i;
  }
}

// A dry run with the most rows bounds the scratch of calls with fewer, whatever C and scales.
TEST_P(VaryingGemm, LargestCallBoundsTheScratch) {
  const DType in = GetParam().in;
  const auto run = [&](Engine& engine, bool dry, std::int64_t rows) {
    const Matrix x = integers(in, rows, kK, Layout::rows, 1), w = integers(in, kN, kK, Layout::rows, 2),
                 dy = integers(in, rows, kN, Layout::rows, 3);
    const Tensor y(GetParam().out, {rows, kN}), dw(DType::f32, {kN, kK}), scale = odd_scales(rows, 1);
    Context ctx;
    ctx.dry = dry;
    const VaryingRows varying(engine);
    engine.matmul(ctx, plain(x.view), plain(w.view.transposed()), y.view(), {.role = GemmRole::forward});
    engine.matmul(ctx, {x.view, in, scale.view()}, plain(w.view.transposed()), y.view(), {.role = GemmRole::forward});
    engine.matmul(ctx, plain(dy.view.transposed()), plain(x.view), dw.view(), {.role = GemmRole::wgrad});
  };
  for (const std::int64_t most : {16, 640, 1100}) {
    Engine planned(GetParam().bf16);
    run(planned, true, most);
    for (const std::int64_t rows : {1, 15, 33, 300, 511, 513, 639, 1099}) {
      Engine engine(GetParam().bf16);
      if (rows > most) continue;
      run(engine, false, rows);
      EXPECT_LE(engine.scratch_bytes(), planned.scratch_bytes()) << rows << " rows of " << most;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, VaryingGemm,
                         ::testing::Values(Way{"f32", DType::f32, DType::f32, HostBf16::detect},
                                           Way{"bf16", DType::bf16, DType::bf16, HostBf16::native},
                                           Way{"bf16_to_f32", DType::bf16, DType::f32, HostBf16::native},
                                           Way{"bf16_upcast", DType::bf16, DType::bf16, HostBf16::upcast}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(PlannedGemm, KeepsFewPlans) {
  for (const DType in : {DType::f32, DType::bf16}) {
    if (in == DType::bf16 && !native_host_bf16()) continue;
    PlannedGemm gemm;
    const Tensor x(in, {700, kK}), w(in, {kN, kK}), y(in, {700, kN}), dw(DType::f32, {kN, kK});
    for (std::int64_t rows = 1; rows <= 700; rows += 3) {
      const View few = x.view().rows(0, rows), dy = y.view().rows(0, rows);
      gemm.run_varying(false, Varying::rows, few, w.view().transposed(), dy, false);
      gemm.run_varying(false, Varying::contraction, dy.transposed(), few, dw.view(), true);
    }
    EXPECT_LE(gemm.plans(), in == DType::f32 ? 2U : 21U);  // 8 and 4 numbers of rows, 9 of the contraction
  }
}

}  // namespace
}  // namespace fp8::gemm::testing
