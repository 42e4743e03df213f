// Scales for blocks on the host: GEMMs in f32 of codes times their scales, compared with plain loops; every kind of
// blocks, layout and pair of operands; long dimensions; refusals.
#include <gtest/gtest.h>

#include <cmath>

#include "fp8_test.h"
#include "matrices.h"

namespace fp8::gemm::testing {
namespace {

using test::error_of;

struct Sides {
  std::int64_t along, across;
};
Sides sides(ScaleBlocks blocks) {
  return {blocks == ScaleBlocks::block1x32 ? 32 : 128, blocks == ScaleBlocks::block128x128 ? 128 : 1};
}

std::int64_t blocks_in(std::int64_t extent, std::int64_t size) { return (extent + size - 1) / size; }

// Powers of two from 2^-3 to 2^3 for the blocks of [outer, k], so that sums of integers are exact; by columns or rows.
Matrix scales_for(ScaleBlocks blocks, std::int64_t outer, std::int64_t k, bool turned) {
  const Sides s = sides(blocks);
  Matrix m = integers(DType::f32, blocks_in(outer, s.across), blocks_in(k, s.along),
                      turned ? Layout::transposed : Layout::wide, 77);
  for (std::int64_t i = 0; i < m.view.shape[0]; ++i)
    for (std::int64_t j = 0; j < m.view.shape[1]; ++j) set(m.view, i, j, std::exp2(get(m.view, i, j)));
  return m;
}

// The matrix [outer, k] times its scales, as f32.
Matrix dense(const Matrix& m, const Matrix& scales, ScaleBlocks blocks) {
  Matrix out = integers(DType::f32, m.view.shape[0], m.view.shape[1], Layout::rows, 1);
  const Sides s = sides(blocks);
  for (std::int64_t i = 0; i < m.view.shape[0]; ++i)
    for (std::int64_t j = 0; j < m.view.shape[1]; ++j) {
      const float by = blocks == ScaleBlocks::none ? 1.0f : get(scales.view, i / s.across, j / s.along);
      set(out.view, i, j, get(m.view, i, j) * by);
    }
  return out;
}

constexpr ScaleBlocks kAll[] = {ScaleBlocks::none, ScaleBlocks::block1x128, ScaleBlocks::block128x128,
                                ScaleBlocks::block1x32};

TEST(BlocksOnTheHost, EqualPlainLoops) {
  constexpr struct { std::int64_t m, n, k; } kSizes[] = {{1, 5, 130}, {140, 33, 300}, {3, 200, 31}, {4, 4, 0}};
  for (const auto& size : kSizes)
    for (const ScaleBlocks x : kAll)
      for (const ScaleBlocks y : kAll)
        for (const Layout layout : {Layout::rows, Layout::transposed_wide})
          for (const DType type : {DType::f32, DType::bf16}) {
            const bool turned = layout == Layout::rows;
            const Matrix a = integers(DType::bf16, size.m, size.k, layout, 2),
                         b = integers(DType::bf16, size.n, size.k, layout, 3);
            const Matrix of_a = scales_for(x, size.m, size.k, turned), of_b = scales_for(y, size.n, size.k, !turned);
            const Tensor bias = odd_scales(size.n, 256.0f);
            Matrix out = integers(type, size.m, size.n, Layout::wide, 4);
            const Matrix left = dense(a, of_a, x), right = dense(b, of_b, y);
            const auto operand = [](const Matrix& m, const Matrix& scales, ScaleBlocks blocks) {
              return Operand{m.view, DType::e4m3, blocks == ScaleBlocks::none ? View{} : scales.view, blocks};
            };
            Operand second = operand(b, of_b, y);
            second.matrix = second.matrix.transposed();
            MatmulOptions options;
            options.bias = bias.view();
            options.accumulate = type == DType::f32;
            const std::vector<float> want =
                expected(plain(left.view), plain(right.view.transposed()), out.view, options);
            Engine engine;
            Context dry;
            dry.dry = true;
            engine.matmul(dry, operand(a, of_a, x), second, out.view, options);
            const std::size_t planned = engine.scratch_bytes();
            engine.matmul(Context{}, operand(a, of_a, x), second, out.view, options);
            EXPECT_EQ(engine.scratch_bytes(), planned);
            EXPECT_EQ(engine.counts().by[3][2].gemms, 1) << "counted as FP8";
            ASSERT_EQ(first_difference(out.view, want), std::nullopt)
                << size.k << " " << static_cast<int>(x) << " " << static_cast<int>(y);
          }
}

TEST(BlocksOnTheHost, Refusals) {
  const Matrix a = integers(DType::bf16, 4, 300, Layout::rows, 1), b = integers(DType::bf16, 300, 8, Layout::rows, 2);
  const Tensor c(DType::f32, {4, 8}), of_a(DType::f32, {4, 3}), of_b(DType::f32, {8, 3}), wrong(DType::f32, {4, 2});
  const Operand x{a.view, DType::e4m3, of_a.view(), ScaleBlocks::block1x128};
  const Operand y{b.view, DType::e4m3, of_b.view(), ScaleBlocks::block1x128};
  const auto refusal = [&](const Operand& left, const Operand& right, const MatmulOptions& options = {}) {
    return error_of([&] { Engine().matmul(Context{}, left, right, c.view(), options); });
  };
  EXPECT_EQ(refusal({a.view, DType::e4m3, wrong.view(), ScaleBlocks::block1x128}, y),
            "matrix multiply: A [4, 300]: scales for blocks have a wrong type or shape");
  EXPECT_EQ(refusal({a.view, DType::e4m3, {}, ScaleBlocks::block1x128}, y),
            "matrix multiply: A [4, 300]: scales for blocks have a wrong type or shape");
  EXPECT_EQ(refusal({a.view, DType::bf16, of_a.view(), ScaleBlocks::block1x128}, y),
            "matrix multiply: A: scales for blocks need FP8 values as bfloat16");
  EXPECT_EQ(refusal({a.view, DType::e4m3, {}}, y, {.accumulation = Accumulation::hopper}),
            "matrix multiply: emulated accumulation of a tensor core needs scales for blocks of both operands, or of "
            "none");
  EXPECT_EQ(refusal(x, y, {.fast_accumulation = true, .accumulation = Accumulation::ada}),
            "matrix multiply: fast accumulation is not supported with scales for blocks of 128");
  const Tensor micro_a(DType::f32, {4, 10}), micro_b(DType::f32, {8, 10});
  EXPECT_EQ(
      refusal({a.view, DType::e4m3, micro_a.view(), ScaleBlocks::block1x32},
              {b.view, DType::e4m3, micro_b.view(), ScaleBlocks::block1x32}, {.accumulation = Accumulation::hopper}),
      "matrix multiply: emulated accumulation of a tensor core: this chip has no GEMM with scales for 1x32");
}

}  // namespace
}  // namespace fp8::gemm::testing
