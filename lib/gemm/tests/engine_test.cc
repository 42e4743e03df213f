// Counts, dry runs, scratch, plans and errors of the engine. Results are tested in matmul_test.cc.
#include <gtest/gtest.h>

#include <string>

#include "fp8_test.h"
#include "matrices.h"
#include "modes.h"
#include "plan.h"

namespace fp8::gemm::testing {
namespace {

class EngineTest : public ::testing::Test {
 protected:
  // The message of the error that a call throws.
  std::string refusal(const Operand& a, const Operand& b, const View& c, const MatmulOptions& options = {}) {
    const std::string message = test::error_of([&] { engine_.matmul(Context{}, a, b, c, options); });
    EXPECT_EQ(engine_.counts().by[3][0].gemms + engine_.counts().by[3][1].gemms, 0) << "failed calls are not counted";
    return message;
  }

  Engine engine_;
  Tensor a_{DType::f32, {4, 6}}, b_{DType::f32, {6, 8}}, c_{DType::f32, {4, 8}};
  Tensor x_{DType::bf16, {4, 6}}, y_{DType::bf16, {6, 8}}, z_{DType::bf16, {4, 8}};
};

TEST(KindOf, IsFp8IfBothAre) {
  EXPECT_EQ(kind_of(DType::e4m3, DType::e4m3), OperandKind::fp8);
  EXPECT_EQ(kind_of(DType::e5m2, DType::e4m3), OperandKind::fp8);
  EXPECT_EQ(kind_of(DType::e4m3, DType::bf16), OperandKind::bf16);
  EXPECT_EQ(kind_of(DType::bf16, DType::bf16), OperandKind::bf16);
  EXPECT_EQ(kind_of(DType::f32, DType::f32), OperandKind::f32);
}

TEST_F(EngineTest, RepeatedGemmsAreNotCounted) {
  MatmulOptions options;
  options.role = GemmRole::forward;
  const auto multiply = [&] { engine_.matmul(Context{}, plain(a_.view()), plain(b_.view()), c_.view(), options); };
  multiply();
  {
    const Uncounted repeated(engine_);
    multiply();
    engine_.count_other(OperandKind::bf16, 1);
  }
  const Counts counts = engine_.counts();
  EXPECT_EQ(counts.linear(OperandKind::f32).gemms, 1);
  EXPECT_EQ(counts.linear(OperandKind::f32).flops, 2.0 * 4 * 6 * 8);
  EXPECT_EQ(counts.by[static_cast<std::size_t>(GemmRole::other)][static_cast<std::size_t>(OperandKind::bf16)].flops, 0);
  multiply();
  EXPECT_EQ(engine_.counts().linear(OperandKind::f32).gemms, 2) << "later ones are";
}

TEST_F(EngineTest, FurtherRowsOfAGemmCountAsFlops) {
  const auto multiply = [&] { engine_.matmul(Context{}, plain(a_.view()), plain(b_.view()), c_.view(), {}); };
  multiply();
  {
    const FurtherRows more(engine_);
    multiply();
  }
  const auto& counts =
      engine_.counts().by[static_cast<std::size_t>(GemmRole::other)][static_cast<std::size_t>(OperandKind::f32)];
  EXPECT_EQ(counts.gemms, 1);
  EXPECT_EQ(counts.flops, 2 * 2.0 * 4 * 6 * 8);
}

TEST_F(EngineTest, CountsByRoleAndKind) {
  MatmulOptions options;
  options.role = GemmRole::forward;
  engine_.matmul(Context{}, {x_.view(), DType::e4m3, {}}, {y_.view(), DType::e4m3, {}}, z_.view(), options);
  const Counts start = engine_.counts();
  EXPECT_EQ(start.share(OperandKind::fp8), 1.0);
  options.role = GemmRole::wgrad;
  for (int i = 0; i < 3; ++i) engine_.matmul(Context{}, plain(x_.view()), plain(y_.view()), c_.view(), options);
  options.role = GemmRole::dgrad;
  engine_.matmul(Context{}, {x_.view(), DType::e5m2, {}}, {y_.view(), DType::e4m3, {}}, c_.view(), options);
  options.role = GemmRole::other;
  engine_.matmul(Context{}, plain(a_.view()), plain(b_.view()), c_.view(), options);

  constexpr double kFlops = 2.0 * 4 * 6 * 8;
  const Counts& all = engine_.counts();
  EXPECT_EQ(all.linear(OperandKind::fp8).gemms, 2);
  EXPECT_EQ(all.linear(OperandKind::fp8).flops, 2 * kFlops);
  EXPECT_EQ(all.linear(OperandKind::bf16).gemms, 3);
  EXPECT_EQ(all.linear(OperandKind::f32).gemms, 0) << "GemmRole::other is outside of linear layers";
  EXPECT_EQ(all.by[static_cast<std::size_t>(GemmRole::other)][static_cast<std::size_t>(OperandKind::f32)].flops,
            kFlops);
  EXPECT_EQ(all.share(OperandKind::fp8), 0.4);
  EXPECT_EQ(all.share_total(OperandKind::fp8), 2.0 / 6);
  const Counts since = all - start;
  EXPECT_EQ(since.linear(OperandKind::fp8).gemms, 1);
  EXPECT_EQ(since.share(OperandKind::fp8), 0.25);
  EXPECT_EQ(Counts{}.share(OperandKind::fp8), 0.0);
  EXPECT_EQ(Counts{}.share_total(OperandKind::fp8), 0.0);
  engine_.count_other(OperandKind::bf16, 4 * kFlops);
  EXPECT_EQ(engine_.counts().share(OperandKind::fp8), 0.4);
  EXPECT_EQ(engine_.counts().share_total(OperandKind::fp8), 0.2);
}

TEST_F(EngineTest, DryRunWritesNothingAndNeedsTheSameScratch) {
  for (const HostBf16 way : {HostBf16::detect, HostBf16::upcast}) {
    Engine planned(way), run(way);
    device::Arena arena;
    Context dry;
    dry.arena = &arena;
    dry.dry = true;
    const View a = tensor::allocate(dry, DType::bf16, {500, 96}, "x"),
               b = tensor::allocate(dry, DType::bf16, {64, 96}, "w");
    const View c = tensor::allocate(dry, DType::bf16, {500, 64}, "y"),
               scales = tensor::allocate(dry, DType::f32, {500}, "scales");
    const std::size_t peak = arena.peak();
    const Operand left{a, DType::e4m3, scales}, right{b.transposed(), DType::e4m3, {}};
    planned.matmul(dry, left, right, c, {});
    EXPECT_EQ(arena.peak(), peak) << "the arena is not used";
    EXPECT_EQ(planned.counts().by[3][2].gemms, 0);

    const Matrix ra = integers(DType::bf16, 500, 96, Layout::rows, 1),
                 rb = integers(DType::bf16, 64, 96, Layout::rows, 2);
    const Tensor rc(DType::bf16, {500, 64}), rs = odd_scales(500, 1.0f);
    run.matmul(Context{}, {ra.view, DType::e4m3, rs.view()}, {rb.view.transposed(), DType::e4m3, {}}, rc.view(), {});
    EXPECT_GE(planned.scratch_bytes(), 500u * 64u * 4u);
    EXPECT_EQ(planned.scratch_bytes(), run.scratch_bytes());
    const std::size_t once = run.scratch_bytes();
    run.matmul(Context{}, {ra.view, DType::e4m3, rs.view()}, {rb.view.transposed(), DType::e4m3, {}}, rc.view(), {});
    EXPECT_EQ(run.scratch_bytes(), once);
  }
}

TEST(Plans, AreReusedAndNeverReferenceLoops) {
  PlanCache plans;
  for (const DType in : {DType::f32, DType::bf16}) {
    if (in == DType::bf16 && !PlanCache::fast_bf16()) continue;
    const auto try_plan = [&](const View& a, const View& b, DType out, bool accumulate) {
      const View c = tensor::make_view(nullptr, out, device::DeviceType::host, {a.shape[0], b.shape[1]});
      MatmulPlan& plan = plans.find(key_of(a, b, c, accumulate));
      EXPECT_EQ(plan.implementation().find("ref"), std::string::npos) << plan.implementation();
      EXPECT_EQ(&plans.find(key_of(a, b, c, accumulate)), &plan);
    };
    for (const std::int64_t m : {256, 250}) {
      for (const auto& [n, k] :
           {std::pair<std::int64_t, std::int64_t>{2304, 768}, {4096, 768}, {768, 2048}, {50257, 772}}) {
        const View x = tensor::make_view(nullptr, in, device::DeviceType::host, {m, k});
        const View w = tensor::make_view(nullptr, in, device::DeviceType::host, {n, k});
        const View dy = tensor::make_view(nullptr, in, device::DeviceType::host, {m, n});
        try_plan(x, w.transposed(), in, false);
        try_plan(dy, w, in, false);
        try_plan(dy.transposed(), x, DType::f32, true);
        try_plan(dy.transposed().rows(64, 192), x.columns(64, 128), DType::f32, false);
        try_plan(x, w.transposed().columns(64, 256), DType::f32, false);
      }
    }
  }
}

TEST(Plans, ArbitraryStridesMakeNoNewPlan) {
  Tensor memory(DType::f32, {8, 8});
  const View row = memory.view().rows(0, 1), other = memory.view().rows(3, 4).reshaped({1, 8});
  View odd = row;
  odd.stride[0] = 1000;
  EXPECT_EQ(key_of(row, memory.view(), row, false), key_of(odd, memory.view(), odd, false));
  EXPECT_EQ(key_of(row, memory.view(), row, false), key_of(other, memory.view(), other, false));
  EXPECT_NE(key_of(row, memory.view(), row, false), key_of(row, memory.view(), row, true));
  EXPECT_NE(key_of(row, memory.view(), row, false), key_of(row, memory.view().transposed(), row, false));
}

TEST_F(EngineTest, RefusesMismatchedShapes) {
  EXPECT_EQ(refusal(plain(a_.view()), plain(a_.view()), c_.view()),
            "matrix multiply: A [4, 6] times B [4, 6] does not give C [4, 8]");
  EXPECT_EQ(refusal(plain(a_.view()), plain(b_.view()), a_.view()),
            "matrix multiply: A [4, 6] times B [6, 8] does not give C [4, 6]");
  EXPECT_EQ(refusal(plain(a_.view().reshaped({2, 2, 6})), plain(b_.view()), c_.view()),
            "matrix multiply: A has 3 dimensions, not 2");
  EXPECT_EQ(refusal(plain(a_.view()), plain(b_.view()), c_.view().reshaped({32})),
            "matrix multiply: C has 1 dimensions, not 2");
}

TEST_F(EngineTest, CountsScaledFp8ValuesInF32AsFp8) {
  engine_.matmul({}, {a_.view(), DType::e4m3, {}}, {b_.view(), DType::e5m2, {}}, c_.view(),
                 {GemmRole::dgrad, false, false, {}});
  EXPECT_EQ(engine_.counts().linear(OperandKind::fp8).gemms, 1);
  EXPECT_EQ(engine_.counts().linear(OperandKind::f32).gemms, 0);
}

TEST_F(EngineTest, RefusesMismatchedFormats) {
  const Tensor integers(DType::i32, {4, 6}), codes(DType::e4m3, {4, 6}), halves(DType::f16, {4, 8});
  EXPECT_EQ(refusal(plain(integers.view()), plain(b_.view()), c_.view()),
            "matrix multiply: A is stored as int32; the host supports float32 and bfloat16");
  EXPECT_EQ(refusal(plain(codes.view()), plain(y_.view()), c_.view()),
            "matrix multiply: A is stored as float8_e4m3fn; the host supports float32 and bfloat16");
  EXPECT_EQ(refusal({a_.view(), DType::bf16, {}}, plain(b_.view()), c_.view()),
            "matrix multiply: A: format bfloat16 cannot be stored as float32");
  EXPECT_EQ(refusal(plain(x_.view()), {y_.view(), DType::f32, {}}, c_.view()),
            "matrix multiply: B: format float32 cannot be stored as bfloat16");
  EXPECT_EQ(refusal(plain(a_.view()), plain(y_.view()), c_.view()), "matrix multiply: A is float32 and B is bfloat16");
  EXPECT_EQ(refusal(plain(a_.view()), plain(b_.view()), halves.view()),
            "matrix multiply: C is float16; it must be float32 or bfloat16");
  MatmulOptions options;
  options.accumulate = true;
  EXPECT_EQ(refusal(plain(x_.view()), plain(y_.view()), z_.view(), options),
            "matrix multiply: C must be float32 to accumulate");
}

TEST_F(EngineTest, RefusesUnsupportedLayouts) {
  View sparse = Tensor(DType::f32, {8, 12}).view().rows(0, 4).columns(0, 6);
  sparse.stride[1] = 2;
  EXPECT_EQ(refusal(plain(sparse), plain(b_.view()), c_.view()), "matrix multiply: A [4, 6] has no unit stride");
  const Tensor turned(DType::f32, {8, 4});
  EXPECT_EQ(refusal(plain(a_.view()), plain(b_.view()), turned.view().transposed()),
            "matrix multiply: C [4, 8] must be row-major");
  View overlapping = c_.view();
  overlapping.stride[0] = 4;
  EXPECT_EQ(refusal(plain(a_.view()), plain(b_.view()), overlapping), "matrix multiply: C [4, 8] must be row-major");
  View nowhere = a_.view();
  nowhere.data = nullptr;
  EXPECT_EQ(refusal(plain(nowhere), plain(b_.view()), c_.view()), "matrix multiply: A [4, 6] has no memory");
  View elsewhere = a_.view();
  elsewhere.device = device::DeviceType::cuda;
  EXPECT_EQ(refusal(plain(elsewhere), plain(b_.view()), c_.view()), "matrix multiply: A is not on the host");
}

TEST_F(EngineTest, RefusesMismatchedScalesAndBias) {
  const Tensor five(DType::f32, {5}), four(DType::bf16, {4});
  EXPECT_EQ(refusal({a_.view(), DType::f32, five.view()}, plain(b_.view()), c_.view()),
            "matrix multiply: A [4, 6] has 5 inverse scales, neither 1 nor 4");
  EXPECT_EQ(refusal(plain(a_.view()), {b_.view(), DType::f32, five.view()}, c_.view()),
            "matrix multiply: B [6, 8] has 5 inverse scales, neither 1 nor 8");
  EXPECT_EQ(refusal({a_.view(), DType::f32, four.view()}, plain(b_.view()), c_.view()),
            "matrix multiply: A's inverse scales must be contiguous float32");
  MatmulOptions options;
  options.bias = five.view();
  EXPECT_EQ(refusal(plain(a_.view()), plain(b_.view()), c_.view(), options),
            "matrix multiply: bias must be 8 contiguous float32 or bfloat16");
}

TEST_F(EngineTest, PlansOneOfEveryMode) {
  using Side = Mode::Side;
  const Side bf16{}, f32{.format = DType::f32}, one{.format = DType::e4m3}, many{.format = DType::e4m3, .vector = true};
  const Side blocks{.format = DType::e4m3, .blocks = ScaleBlocks::block1x128};
  for (const Mode& m : {Mode{.a = bf16, .b = bf16},
                        {.a = f32, .b = f32, .c = DType::f32, .accumulate = true},
                        {.a = one, .b = many, .fast_accumulation = true},
                        {.a = blocks, .b = blocks}})
    plan_mode(engine_, Context{}, m);
  EXPECT_EQ(engine_.counts().by[3][2].gemms, 0) << "dry runs are not counted";
}

// A dry context for a GPU without a stream plans for another machine: the plan is checked, scratch is recorded.
TEST_F(EngineTest, PlansForAnAbsentGpu) {
  using Side = Mode::Side;
  Context dry;
  dry.device = device::DeviceType::cuda;
  dry.dry = true;
  const Side one{.format = DType::e4m3}, many{.format = DType::e4m3, .vector = true};
  const Side rows{.format = DType::e4m3, .blocks = ScaleBlocks::block1x128},
      squares{.format = DType::e4m3, .blocks = ScaleBlocks::block128x128};
  const Side micro{.format = DType::e4m3, .blocks = ScaleBlocks::block1x32};
  const std::string missing = test::error_of([&] { plan_mode(engine_, dry, {}); });
  if (missing != "no error") GTEST_SKIP() << missing;
  EXPECT_EQ(engine_.scratch_bytes(), std::size_t{32} << 20);
  for (const Mode& m : {Mode{.a = one, .b = one, .fast_accumulation = true},
                        {.a = many, .b = many},
                        {.a = rows, .b = squares},
                        {.a = rows, .b = rows, .c = DType::f32, .accumulate = true}})
    plan_mode(engine_, dry, m);
  plan_mode(engine_, dry, {.a = many, .b = one});
  EXPECT_EQ(engine_.scratch_bytes(), (std::size_t{32} << 20) + 256 * sizeof(float)) << "one scale is broadcast";
  EXPECT_EQ(test::error_of([&] { plan_mode(engine_, dry, {.a = micro, .b = micro}); }),
            "matrix multiply: scales for 1x32 are multiplied into FP8 values on a GPU");
  EXPECT_EQ(test::error_of([&] { plan_mode(engine_, dry, {.a = squares, .b = squares}); }),
            "matrix multiply: A with scales for 128x128 and B with scales for 128x128 is not supported by cuBLASLt");
  Context real = dry;
  real.dry = false;
  const View nothing =
      tensor::make_view(reinterpret_cast<void*>(std::uintptr_t{4096}), DType::f32, device::DeviceType::cuda, {4, 4});
  EXPECT_EQ(test::error_of([&] { engine_.matmul(real, plain(nothing), plain(nothing), nothing, {}); }),
            "matrix multiply: the context has no GPU stream");
}

}  // namespace
}  // namespace fp8::gemm::testing
