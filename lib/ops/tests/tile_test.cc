// GEMMs of tiles, of floats and of pairs of bf16, whose sums are exact integers, for every instruction set.
#include "tile.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fp8/dtype/element.h"
#include "isas.h"

namespace fp8::ops {
namespace {

constexpr std::int64_t kM = 2 * kTileRows, kN = 48, kK = 10;

float a_at(std::int64_t i, std::int64_t p) { return static_cast<float>((3 * i + 5 * p) % 17 - 8); }
float b_at(std::int64_t p, std::int64_t j) { return static_cast<float>((7 * p + j) % 13 - 6); }
Pair pair_of(float first, float second) {
  return dtype::to_bf16(first).bits | static_cast<Pair>(dtype::to_bf16(second).bits) << 16;
}

// The product added to `before`.
std::vector<float> wanted(float before) {
  std::vector<float> c;
  for (std::int64_t i = 0; i < kM; ++i) {
    for (std::int64_t j = 0; j < kN; ++j) {
      float sum = before;
      for (std::int64_t p = 0; p < kK; ++p) sum += a_at(i, p) * b_at(p, j);
      c.push_back(sum);
    }
  }
  return c;
}

class Tile : public testing::TestWithParam<Isa> {
 protected:
  const TileKernels& kernels = tile_kernels(GetParam());
};

TEST_P(Tile, MultipliesFloats) {
  std::vector<float> a, b, c(static_cast<std::size_t>(kM * kN), 2.0f);
  for (std::int64_t i = 0; i < kM; ++i)
    for (std::int64_t p = 0; p < kK; ++p) a.push_back(a_at(i, p));
  for (std::int64_t p = 0; p < kK; ++p)
    for (std::int64_t j = 0; j < kN; ++j) b.push_back(b_at(p, j));
  ASSERT_EQ(kN % kernels.lanes, 0);
  kernels.multiply(kM, kN, kK, {a.data(), kK, 1}, {b.data(), kN}, {c.data(), kN}, true);
  EXPECT_EQ(c, wanted(2));
  kernels.multiply(kM, kN, kK, {a.data(), kK, 1}, {b.data(), kN}, {c.data(), kN}, false);
  EXPECT_EQ(c, wanted(0));
}

TEST_P(Tile, MultipliesPairs) {
  EXPECT_EQ(kernels.multiply_pairs != nullptr, GetParam() == Isa::avx512_bf16);
  if (kernels.multiply_pairs == nullptr) return;
  std::vector<Pair> a, turned(static_cast<std::size_t>(kM * kK / 2)), b;
  std::vector<float> c(static_cast<std::size_t>(kM * kN), 2.0f);
  for (std::int64_t i = 0; i < kM; ++i) {
    for (std::int64_t p = 0; p < kK; p += 2) {
      a.push_back(pair_of(a_at(i, p), a_at(i, p + 1)));
      turned[static_cast<std::size_t>(p / 2 * kM + i)] = a.back();
    }
  }
  for (std::int64_t p = 0; p < kK; p += 2)
    for (std::int64_t j = 0; j < kN; ++j) b.push_back(pair_of(b_at(p, j), b_at(p + 1, j)));
  kernels.multiply_pairs(kM, kN, kK / 2, {a.data(), kK / 2, 1}, {b.data(), kN}, {c.data(), kN}, true);
  EXPECT_EQ(c, wanted(2));
  kernels.multiply_pairs(kM, kN, kK / 2, {turned.data(), 1, kM}, {b.data(), kN}, {c.data(), kN}, false);
  EXPECT_EQ(c, wanted(0)) << "from a transposed left operand";
}

TEST_P(Tile, TransposesPairsUnsplit) {
  std::vector<Pair> in, out(32 * 3);
  for (Pair i = 0; i < 32 * 3; ++i) in.push_back(i * 0x10001u);
  kernels.transpose_pairs(32, 3, {in.data(), 3}, {out.data(), 32});
  for (std::size_t r = 0; r < 32; ++r)
    for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(out[c * 32 + r], in[r * 3 + c]);
}

INSTANTIATE_TEST_SUITE_P(Isas, Tile, testing::ValuesIn(test::isas()),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace fp8::ops
