// Casts with one scale per block compared with a loop over single elements, in every type, granularity, contraction
// axis and layout; codes folded with their scales; counts; threads; dry runs.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "fp8/quant/scale.h"
#include "fp8_codes.h"
#include "matrices.h"

namespace fp8::quant {
namespace {

using dtype::Bf16;
using dtype::DType;

std::vector<Case> block_cases() {
  std::vector<Case> all;
  for (const DType type : {DType::f32, DType::bf16})
    for (const Cast& cast : {Cast{DType::e4m3, Granularity::block1x128}, Cast{DType::e5m2, Granularity::block1x128},
                             Cast{DType::e4m3, Granularity::block128x128}, Cast{DType::e4m3, Granularity::block1x32},
                             Cast{DType::e5m2, Granularity::block1x32}})
      for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first})
        for (const Layout layout : {Layout::contiguous, Layout::strided_rows, Layout::columns_first})
          all.push_back({type, cast, contract, layout});
  return all;
}

// Elements of a block in rows and in columns.
struct Block {
  std::int64_t rows, cols;
};
Block block_of(Granularity g, ContractionAxis contract) {
  const std::int64_t along = g == Granularity::block1x32 ? 32 : 128, across = g == Granularity::block128x128 ? 128 : 1;
  return contract == ContractionAxis::last ? Block{across, along} : Block{along, across};
}

// Amaxes of all blocks; a NaN propagates unless they are skipped.
class Amaxes {
 public:
  Amaxes(const Matrix& x, const Block& block, bool skip_nan)
      : block_(block),
        across_((x.view.shape[1] + block.cols - 1) / block.cols),
        of_(static_cast<std::size_t>((x.view.shape[0] + block.rows - 1) / block.rows * across_)) {
    for (std::int64_t r = 0; r < x.view.shape[0]; ++r)
      for (std::int64_t c = 0; c < x.view.shape[1]; ++c) {
        float& amax = of_[index(r, c)];
        const float v = std::fabs(x.at(r, c));
        if (std::isnan(v) ? !skip_nan : v > amax) amax = v;
      }
  }
  float of(std::int64_t r, std::int64_t c) const { return of_[index(r, c)]; }

 private:
  std::size_t index(std::int64_t r, std::int64_t c) const {
    return static_cast<std::size_t>(r / block_.rows * across_ + c / block_.cols);
  }
  Block block_;
  std::int64_t across_;
  std::vector<float> of_;
};

class BlockCast : public ::testing::TestWithParam<Case> {
 public:
  // Checks every code and scale of a cast of x.
  static void check(const Matrix& x, const Case& t, const CastOptions& options, bool folded) {
    const Block block = block_of(t.cast.granularity, t.contract);
    const bool mx = t.cast.granularity == Granularity::block1x32, e4m3 = t.cast.format == DType::e4m3;
    const float max = dtype::max_of(t.cast.format);
    const BlockRule rule = t.type == DType::f32 ? block_rule<float>(t.cast.granularity, max, options.power_of_2)
                                                : block_rule<Bf16>(t.cast.granularity, max, options.power_of_2);
    const Amaxes amaxes(x, block, !mx);
    Host host;
    CastCounts counts, expected;
    CastOptions with_counts = options;
    with_counts.counts = &counts;
    const Quantized q = quantize(host.context, x.view, t.cast, t.contract, with_counts);
    ASSERT_EQ(q.folded, folded);
    ASSERT_EQ(q.contract, t.contract);
    for (std::int64_t r = 0; r < x.view.shape[0]; ++r)
      for (std::int64_t c = 0; c < x.view.shape[1]; ++c) {
        const auto [scale, inverse] = rule(amaxes.of(r, c));
        ASSERT_TRUE(same(element(q.scale, r / block.rows, c / block.cols), scale)) << r << ' ' << c;
        ASSERT_TRUE(same(element(q.inverse_scale, r / block.rows, c / block.cols), inverse)) << r << ' ' << c;
        const float v = x.at(r, c) * scale;
        const float code = e4m3 ? dtype::round_to_e4m3(v) : dtype::round_to_e5m2(v);
        ASSERT_TRUE(same(element(q.codes, r, c), folded ? code * inverse : code)) << r << ' ' << c;
        ++expected.elements;
        expected.saturated += std::fabs(v) > (e4m3 ? 464.0f : 61440.0f);
        expected.underflowed += code == 0 && x.at(r, c) != 0;
      }
    EXPECT_EQ(counts.elements, expected.elements);
    EXPECT_EQ(counts.saturated, expected.saturated);
    EXPECT_EQ(counts.underflowed, expected.underflowed);
  }
};
INSTANTIATE_TEST_SUITE_P(All, BlockCast, ::testing::ValuesIn(block_cases()));

TEST_P(BlockCast, AgreesWithSingleElements) {
  const Case& t = GetParam();
  for (const auto& [rows, cols] : {std::pair{1, 1}, {9, 271}, {143, 40}, {128, 256}, {0, 16}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols));
    Matrix x(t.type, rows, cols, t.layout);
    for (std::int64_t r = 0; r < std::min<std::int64_t>(rows, 32); ++r)  // a block of zeros
      for (std::int64_t c = 0; c < std::min<std::int64_t>(cols, 130); ++c) x.set(r, c, c % 3 == 0 ? -0.0f : 0.0f);
    const bool powers = t.cast.granularity == Granularity::block1x32;
    check(x, t, {}, false);
    check(x, t, {.power_of_2 = true}, false);
    check(x, t, {.power_of_2 = true, .fold = true}, true);
    check(x, t, {.fold = true}, powers);
  }
}

TEST_P(BlockCast, NonFiniteElements) {
  const Case& t = GetParam();
  const bool mx = t.cast.granularity == Granularity::block1x32;
  Matrix x(t.type, 140, 150, t.layout);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  x.set(3, 5, nan);
  x.set(130, 140, -nan);
  check(x, t, {.power_of_2 = true}, false);
  check(x, t, {.power_of_2 = true, .fold = true}, !mx);
  x.set(131, 7, -inf);
  check(x, t, {.power_of_2 = true, .fold = true}, !mx);
}

// Codes whose products with the inverse scales are not normal BF16 values stay codes.
TEST_P(BlockCast, FoldsOnlyWhatIsExact) {
  const Case& t = GetParam();
  const bool e4m3 = t.cast.format == DType::e4m3;
  for (const auto& [amax, folded] : {std::pair{0x1p-100f, e4m3},
                                     {0x1p-85f, true},
                                     {0x1p-126f, false},
                                     {0x1p-133f, false},
                                     {0x1p120f, true},
                                     {0x1.8p127f, true}}) {
    Matrix x(t.type, 3, 40, t.layout);
    for (std::int64_t r = 0; r < 3; ++r)
      for (std::int64_t c = 0; c < 40; ++c) x.set(r, c, amax);
    Host host;
    const Quantized q = quantize(host.context, x.view, t.cast, t.contract, {.power_of_2 = true, .fold = true});
    for (std::int64_t r = 0; r < 3; ++r)
      for (std::int64_t c = 0; c < 40; ++c) {
        const Block block = block_of(t.cast.granularity, t.contract);
        const float inverse = element(q.inverse_scale, r / block.rows, c / block.cols);
        const float code = element(q.codes, r, c);
        ASSERT_EQ(q.folded ? code : code * inverse, x.at(r, c)) << amax;
      }
    if (amax < 1) {
      EXPECT_EQ(q.folded, folded) << amax;
    }
  }
}

TEST_P(BlockCast, IsIndependentOfThreads) {
  const Case& t = GetParam();
  const Matrix x(t.type, 300, 331, t.layout);
  const int threads = omp_get_max_threads();
  Host one_host, many_host;
  CastCounts one_count, many_count;
  omp_set_num_threads(1);
  const Quantized one =
      quantize(one_host.context, x.view, t.cast, t.contract, {.power_of_2 = true, .counts = &one_count});
  omp_set_num_threads(5);
  const Quantized many =
      quantize(many_host.context, x.view, t.cast, t.contract, {.power_of_2 = true, .counts = &many_count});
  omp_set_num_threads(threads);
  for (std::int64_t r = 0; r < 300; ++r)
    for (std::int64_t c = 0; c < 331; ++c) ASSERT_EQ(element(one.codes, r, c), element(many.codes, r, c));
  for (std::int64_t r = 0; r < one.scale.shape[0]; ++r)
    for (std::int64_t c = 0; c < one.scale.shape[1]; ++c)
      ASSERT_EQ(element(one.inverse_scale, r, c), element(many.inverse_scale, r, c));
  EXPECT_EQ(one_count.underflowed, many_count.underflowed);
  EXPECT_EQ(one_count.elements, 300 * 331);
}

TEST_P(BlockCast, DequantizesToTheSourceWithinHalfASpacing) {
  const Case& t = GetParam();
  const Matrix x(t.type, 140, 150, t.layout);
  for (const bool fold : {false, true}) {
    Host host;
    const Quantized q = quantize(host.context, x.view, t.cast, t.contract, {.power_of_2 = true, .fold = fold});
    const View values = dequantize(host.context, q);
    for (std::int64_t r = 0; r < 140; ++r)
      for (std::int64_t c = 0; c < 150; ++c) {
        const float spacing =
            std::max(std::fabs(x.at(r, c)) * (t.cast.format == DType::e4m3 ? 0.0625f : 0.125f), 0x1p-10f);
        ASSERT_NEAR(element(values, r, c), x.at(r, c), spacing) << r << ' ' << c;
      }
  }
}

TEST_P(BlockCast, DryRunAllocatesTheSameMemory) {
  const Case& t = GetParam();
  const Matrix x(t.type, 33, 165, t.layout);
  Host host;
  device::Arena dry_arena;
  for (const Context& ctx : {host.context, Context{.arena = &dry_arena, .dry = true}})
    dequantize(ctx, quantize(ctx, x.view, t.cast, t.contract, {.power_of_2 = true, .fold = true}));
  EXPECT_EQ(dry_arena.peak(), host.context.arena->peak());
}

// One set of codes and scales serves the GEMMs of both dimensions.
TEST(BlockCastOf, SquaresAreSharedByBothGemms) {
  const Matrix x(DType::bf16, 140, 300);
  const Cast squares{DType::e4m3, Granularity::block128x128}, rows{DType::e4m3, Granularity::block1x128};
  Host host;
  CastCounts counts;
  const QuantizedPair both =
      quantize_both(host.context, x.view, {squares, squares}, {.power_of_2 = true, .counts = &counts});
  EXPECT_EQ(both.last.codes.data, both.first.codes.data);
  EXPECT_EQ(counts.elements, 140 * 300);
  const Quantized first = quantize(host.context, x.view, squares, ContractionAxis::first, {.power_of_2 = true});
  for (std::int64_t r = 0; r < 140; ++r)
    for (std::int64_t c = 0; c < 300; ++c) {
      ASSERT_EQ(element(first.codes, r, c), element(both.last.codes, r, c));
      ASSERT_EQ(element(first.scale, r / 128, c / 128), element(both.last.scale, r / 128, c / 128));
    }
  EXPECT_EQ(first.scale.stride[0], 1);
  EXPECT_EQ(first.scale.stride[1], 4);
  EXPECT_EQ(both.last.scale.stride[0], 4);
  const QuantizedPair apart = quantize_both(host.context, x.view, {rows, rows}, {.power_of_2 = true});
  EXPECT_NE(apart.last.codes.data, apart.first.codes.data);
  EXPECT_EQ(apart.last.scale.shape[1], 3);
  EXPECT_EQ(apart.first.scale.shape[0], 2);
  EXPECT_EQ(apart.last.scale.stride[0], 3);
  EXPECT_EQ(apart.last.scale.stride[1], 1);
  EXPECT_EQ(apart.first.scale.stride[0], 300);
}

}  // namespace
}  // namespace fp8::quant
