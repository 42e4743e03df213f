// Rotary positions: tables, exact rotations by quarter turns, and the inverse, which is the transpose.
#include <gtest/gtest.h>

#include "fp8/ops/attention.h"
#include "reference.h"

namespace fp8::ops {
namespace {

TEST(RopeTables, CosineAndSineOfPositionTimesFrequency) {
  Host host;
  const std::vector<float> frequencies{1.0f, 0.25f, 0.001f};
  const Tensor cos(DType::f32, {300, 3}), sin(DType::f32, {300, 3});
  rope_tables(host, frequencies, cos.view(), sin.view());
  for (std::int64_t t = 0; t < 300; ++t) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const auto angle = static_cast<double>(static_cast<float>(t) * frequencies[static_cast<std::size_t>(i)]);
      EXPECT_EQ(cos.as<float>()[t * 3 + i], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(sin.as<float>()[t * 3 + i], static_cast<float>(std::sin(angle)));
    }
  }
}

TEST(Rope, RotatesHalvesOfStridedHeads) {
  Host host;
  // Position 0 is not rotated; position 1 is rotated by a quarter turn in the first pair and half a turn in the second.
  const Tensor cos = make(DType::f32, {3, 2}, {1, 1, 0, -1, 1, 1}), sin = make(DType::f32, {3, 2}, {0, 0, 1, 0, 0, 0});
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor fused = make(type, {1, 2, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8});
    View first = fused.view();
    first.shape[2] = 1;
    rope(host, first, cos.view(), sin.view(), false);
    EXPECT_EQ(read(fused.view()), (Values{1, 2, 3, 4, 5, 6, 7, 8, -3, -2, 1, -4, 5, 6, 7, 8}));
    rope(host, first, cos.view(), sin.view(), true);
    EXPECT_EQ(read(fused.view()), (Values{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}));
  }
}

TEST(Rope, InverseIsTheTranspose) {
  Host host;
  const std::int64_t batch = 2, t = 37, heads = 5, d = 34;
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < d / 2; ++i)
    frequencies.push_back(std::pow(100.0f, -static_cast<float>(2 * i) / static_cast<float>(d)));
  const Tensor cos(DType::f32, {64, d / 2}), sin(DType::f32, {64, d / 2});
  rope_tables(host, frequencies, cos.view(), sin.view());
  const std::int64_t n = batch * t * heads * d;
  const Values x = random_values(n, 1), dy = random_values(n, 2);
  const Tensor tx = make(DType::f32, {batch, t, heads, d}, x), tdy = make(DType::f32, {batch, t, heads, d}, dy);
  rope(host, tx.view(), cos.view(), sin.view(), false);
  rope(host, tdy.view(), cos.view(), sin.view(), true);
  EXPECT_NEAR(dot(read(tx.view()), dy), dot(x, read(tdy.view())), 1e-4);  // <R x, dy> = <x, R' dy>
  rope(host, tx.view(), cos.view(), sin.view(), true);
  EXPECT_LT(relative_error(read(tx.view()), x), 2e-7);
}

TEST(Rope, RefusesTooSmallTables) {
  Host host;
  const Tensor x(DType::f32, {1, 4, 1, 4}), cos(DType::f32, {3, 2}), sin(DType::f32, {3, 2}),
      odd(DType::f32, {1, 4, 1, 3});
  EXPECT_EQ(error_of([&] { rope(host, x.view(), cos.view(), sin.view(), false); }),
            "rope: the tables have too few positions or another width");
  EXPECT_EQ(error_of([&] { rope(host, odd.view(), cos.view(), sin.view(), false); }),
            "rope: x must have 4 dimensions, the last even and with unit stride");
}

}  // namespace
}  // namespace fp8::ops
