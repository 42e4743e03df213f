// Casts of operands to NVFP4: the values of the codes and scales of cast_to_fp4(), whose bits tests/golden/nvfp4 has,
// and random bits by the place of an element in the global batch, whatever part of it a rank or a micro-batch has.
#include "fp8/quant/fp4.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "fp8/device/philox.h"
#include "fp8/device/profile.h"
#include "fp8_ranks.h"
#include "matrices.h"

namespace fp8::quant {
namespace {

using dtype::Bf16;
using dtype::DType;
using tensor::Tensor;

constexpr std::array<float, 8> kMagnitudes{0, 0.5, 1, 1.5, 2, 3, 4, 6};
constexpr std::int64_t kRows = 64, kCols = 96;
constexpr Cast kBlock{DType::e2m1, Granularity::block1x16}, kSquare{DType::e2m1, Granularity::block16x16},
    kStochastic{DType::e2m1, Granularity::block1x16, false, true};

float amax_of(const Matrix& x) {
  float amax = 0;
  for (std::int64_t r = 0; r < x.view.shape[0]; ++r)
    for (std::int64_t c = 0; c < x.view.shape[1]; ++c) amax = std::fmax(amax, std::fabs(x.at(r, c)));
  return amax;
}

// Random bits of a matrix whose rows begin at row `first` of a batch of `rows`, by the definition in fp8-recipes(7).
Tensor bits_of(const RandomBits& at, std::int64_t rows, std::int64_t cols, ContractionAxis contract) {
  Tensor bits(DType::u8, {rows, cols});
  const bool last = contract == ContractionAxis::last;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t row = at.first_row + r;
      const std::int64_t index = last ? row * cols + c : (c * (at.rows / 16) + row / 16) * 16 + row % 16;
      const auto words = device::philox(at.seed, static_cast<std::uint64_t>(index / 16), at.stream + (last ? 0 : 1));
      bits.as<std::uint8_t>()[r * cols + c] =
          static_cast<std::uint8_t>(words[static_cast<std::size_t>(index % 16 / 4)] >> (index % 4 * 8));
    }
  return bits;
}

class Fp4 : public ::testing::Test {
 protected:
  // Expects a cast to have the values of codes and scales.
  void expect_values(const Quantized& q, const View& x, const Fp4Cast& how) {
    const std::int64_t rows = x.shape[0], cols = x.shape[1];
    const auto shape = fp4_scales(rows, cols, how.contract, how.square);
    const Tensor codes(DType::u8, {rows, cols}), scales(DType::u8, {shape[0], shape[1]});
    cast_to_fp4(ctx_, x, how, codes.view(), scales.view());
    const std::int64_t down = how.square || how.contract == ContractionAxis::first ? 16 : 1,
                       across = how.square || how.contract == ContractionAxis::last ? 16 : 1;
    EXPECT_EQ(*q.inverse_scale.as<float>(), how.amax);
    const View values = dequantize(ctx_, q);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) {
        const std::uint8_t code = codes.as<std::uint8_t>()[r * cols + c];
        const float scale = dtype::from_e4m3(scales.as<std::uint8_t>()[r / down * shape[1] + c / across]),
                    value = (code & 8) != 0 ? -kMagnitudes[code & 7] * scale : kMagnitudes[code & 7] * scale;
        ASSERT_EQ(element(q.codes, r, c), value) << r << " " << c;
        ASSERT_EQ(std::signbit(element(q.codes, r, c)), (code & 8) != 0) << r << " " << c;
        ASSERT_EQ(element(values, r, c), value * (how.amax / 2688)) << r << " " << c;
      }
  }
  Quantized cast(const View& x, const Cast& how, ContractionAxis contract, const CastOptions& options = {}) const {
    return quantize(ctx_, x, how, contract, options);
  }

  device::Arena arena_{std::size_t{1} << 24, device::DeviceType::host};
  device::Context ctx_ = [this] {
    device::Context ctx;
    ctx.arena = &arena_;
    return ctx;
  }();
};

TEST_F(Fp4, ValuesAreCodesTimesScales) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const Matrix x(type, kRows, kCols, Layout::strided_rows);
    const float amax = amax_of(x);
    for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first}) {
      expect_values(cast(x.view, kBlock, contract), x.view, {.contract = contract, .amax = amax});
      expect_values(cast(x.view, kSquare, contract), x.view, {.contract = contract, .square = true, .amax = amax});
    }
  }
}

TEST_F(Fp4, TransformedRowsArePaddedToSixteen) {
  const Matrix x(DType::bf16, kRows - 5, kCols);
  const Tensor rotated(DType::bf16, {kRows, kCols});
  hadamard_transform(ctx_, x.view, rotated.view());
  const Quantized q = cast(x.view, {DType::e2m1, Granularity::block1x16, true, false}, ContractionAxis::first);
  float amax = 0;
  for (std::int64_t i = 0; i < kRows * kCols; ++i)
    amax = std::fmax(amax, std::fabs(dtype::to_float(rotated.as<Bf16>()[i])));
  expect_values(q, rotated.view(), {.contract = ContractionAxis::first, .amax = amax});
}

TEST_F(Fp4, RandomBitsFollowTheirDefinition) {
  constexpr RandomBits kNear{.seed = 7, .stream = 0x5000006, .first_row = 48, .rows = 160};
  // Seed, stream and counters have more than 32 bits.
  constexpr std::int64_t kMany = std::int64_t{1} << 38;
  constexpr RandomBits kFar{.seed = 7ull << 33, .stream = 5ull << 34, .first_row = kMany - 128, .rows = kMany};
  for (const RandomBits& at : {kNear, kFar})
    for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first}) {
      // Bits are made for many blocks at a time, of which the last are a part.
      const std::int64_t cols = contract == ContractionAxis::last ? kCols : kCols + 5;
      const Matrix x(DType::bf16, kRows, cols);
      const Tensor bits = bits_of(at, kRows, cols, contract);
      expect_values(cast(x.view, kStochastic, contract, {.random = at}), x.view,
                    {.contract = contract, .amax = amax_of(x), .random = bits.view()});
    }
}

// Rows on two micro-batches, and columns on two ranks, round as in the whole matrix.
TEST_F(Fp4, PartsRoundAsTheWhole) {
  Matrix x(DType::f32, kRows, kCols);
  for (const std::int64_t r : {std::int64_t{0}, kRows / 2}) x.set(r, 0, 100);  // every part has the amax
  const CastOptions of_whole{.random = {.seed = 1, .stream = 2, .rows = kRows}};
  for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first}) {
    const Quantized whole = cast(x.view, kStochastic, contract, of_whole);
    const auto expect_part = [&](const Quantized& part, std::int64_t first_row, std::int64_t first_column) {
      for (std::int64_t r = 0; r < part.codes.shape[0]; ++r)
        for (std::int64_t c = 0; c < part.codes.shape[1]; ++c)
          ASSERT_EQ(element(part.codes, r, c), element(whole.codes, first_row + r, first_column + c)) << r << " " << c;
    };
    CastOptions of_rows = of_whole;
    of_rows.random.first_row = kRows / 2;
    expect_part(cast(x.view.rows(kRows / 2, kRows), kStochastic, contract, of_rows), kRows / 2, 0);
    test::RanksInTurn ranks;
    constexpr std::int64_t kFirst = 32;
    std::array<Quantized, 2> parts;
    ranks.run(2, [&](int rank) {
      CastOptions of_columns = of_whole;
      of_columns.split = {&ranks, 1, rank == 0 ? 0 : kFirst, kCols};
      const View columns = rank == 0 ? x.view.columns(0, kFirst) : x.view.columns(kFirst, kCols);
      parts[static_cast<std::size_t>(rank)] = cast(columns, kStochastic, contract, of_columns);
    });
    EXPECT_EQ(ranks.calls(), 1u);
    expect_part(parts[0], 0, 0);
    expect_part(parts[1], 0, kFirst);
  }
}

TEST_F(Fp4, CountsWhatBecomesZero) {
  Matrix x(DType::f32, 16, 32);
  for (std::int64_t r = 0; r < 16; ++r)
    for (std::int64_t c = 0; c < 32; ++c) x.set(r, c, c == 0 ? 6 : c < 16 ? 0.2F : 0);
  CastCounts counts;
  CastOptions options;
  options.counts = &counts;
  (void)cast(x.view, kBlock, ContractionAxis::last, options);
  EXPECT_EQ(counts.elements, 16 * 32);
  EXPECT_EQ(counts.underflowed, 16 * 15);
  EXPECT_EQ(counts.saturated, 0);
}

TEST_F(Fp4, NanReachesEveryElement) {
  Matrix x(DType::bf16, 16, 32);
  x.set(3, 5, kNan);
  EXPECT_TRUE(std::isnan(*cast(x.view, kBlock, ContractionAxis::last).inverse_scale.as<float>()));
}

TEST_F(Fp4, RefusesWhatHasNoBlocks) {
  const Matrix x(DType::bf16, 16, 24), y(DType::bf16, 16, 32);
  EXPECT_EQ(error_of([&] { (void)cast(x.view, kBlock, ContractionAxis::last); }),
            "cast_to_fp4: 24 columns are no multiple of 16");
  test::RanksInTurn ranks;
  CastOptions options;
  options.split = {&ranks, 1, 8, 64, true};
  EXPECT_NE(error_of([&] { (void)cast(y.view, kBlock, ContractionAxis::last, options); }).find("--tp"),
            std::string::npos);
}

// Two codes to a byte, block scales in tiles of 128 x 4, and an amax for each form.
TEST(PlannedFp4, HasPackedCodesAndTwoPassesOverTheMatrix) {
  device::Arena arena;
  device::Profile profile;
  profile.recording = device::Recording::planned;
  const Context ctx{.device = device::DeviceType::cuda, .arena = &arena, .dry = true, .profile = &profile};
  const View x = tensor::allocate(ctx, DType::bf16, {kRows, kCols}, "x");
  const std::size_t before = arena.peak();
  const Cast transformed{DType::e2m1, Granularity::block1x16, true, true};
  const QuantizedPair pair = quantize_both(ctx, x, {.last = kBlock, .first = transformed}, {});
  EXPECT_EQ(pair.last.codes.shape, (std::array<std::int64_t, 4>{kRows, kCols, 0, 0}));
  EXPECT_EQ(pair.first.codes.stride[0], 1);
  EXPECT_EQ(pair.first.inverse_scale.size(), 1);
  constexpr std::size_t kAmax = 256;                  // in an arena
  constexpr std::size_t kScales = 128 * 8 + 128 * 4;  // of 64 x 6 and of 96 x 4 blocks
  EXPECT_EQ(arena.peak() - before, 2 * (kRows * kCols / 2 + kAmax) + kScales);
  ASSERT_EQ(profile.spans().size(), 1U);
  constexpr double kElements = kRows * kCols;
  EXPECT_DOUBLE_EQ(profile.spans()[0].bytes, (2 * 2 + 2 * 0.5625) * kElements);
  EXPECT_EQ(quantize(ctx, x, kSquare, ContractionAxis::first, {}).codes.dtype, DType::e2m1);
}

TEST(PlannedFp4, IsNothingThatAGpuComputes) {
  const Context ctx{.device = device::DeviceType::cuda};
  View x = tensor::make_view(nullptr, DType::bf16, device::DeviceType::cuda, {kRows, kCols});
  EXPECT_EQ(error_of([&] { (void)quantize(ctx, x, kBlock, ContractionAxis::last, {}); }),
            "quantize: casts to FP4 are not available on a GPU");
  EXPECT_EQ(error_of([&] { (void)from_packed(ctx, x, x, x, ContractionAxis::last); }),
            "weights stored as FP4 codes are computed on CPUs only (--device cpu)");
}

}  // namespace
}  // namespace fp8::quant
