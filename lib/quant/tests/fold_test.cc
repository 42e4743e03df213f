// Scales that are folded into another operand: on the host against single elements, and the kernels against the host.
#include "fp8/quant/fold.h"

#include <gtest/gtest.h>

#include <limits>

#include "codes.h"
#include "cuda.h"
#include "far_rows.h"
#include "fp8/quant/tile_sizes.h"
#include "shim_launches.h"

namespace fp8::quant {
namespace {

using dtype::DType;
using tensor::Tensor;

constexpr Cast kRow{DType::e4m3, Granularity::row};

TEST(Fold, ColumnsAreMultipliedAndRounded) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [layout, cols] : {std::pair{Layout::contiguous, 75},
                                       {Layout::strided_rows, 75},
                                       {Layout::contiguous, 132},
                                       {Layout::contiguous, 136},
                                       {Layout::strided_rows, 136}}) {
      const Matrix x(type, 130, cols, layout);
      const Tensor factors(DType::f32, {cols}), there(type, {130, cols});
      for (int c = 0; c < cols; ++c) factors.as<float>()[c] = c % 2 == 0 ? std::ldexp(1.0f, c % 75 - 40) : 0.3f;
      Host host;
      const View out = scale_columns(host.context, x.view, factors.view());
      cuda::scale_columns({}, x.view, factors.view(), there.view());
      for (std::int64_t r = 0; r < 130; ++r)
        for (std::int64_t c = 0; c < cols; ++c) {
          const float product = x.at(r, c) * factors.as<float>()[c];
          const std::int64_t i = r * cols + c;
          if (type == DType::f32) {
            ASSERT_EQ(out.as<float>()[i], product);
            ASSERT_EQ(there.as<float>()[i], product);
          } else {
            ASSERT_EQ(out.as<dtype::Bf16>()[i].bits, dtype::to_bf16(product).bits);
            ASSERT_EQ(there.as<dtype::Bf16>()[i].bits, dtype::to_bf16(product).bits);
          }
        }
    }
}

// The last tile of a matrix of more than 2^32 elements.
TEST(Fold, OffsetsBeyond32Bits) {
  constexpr std::int64_t kRows = std::int64_t{1} << 20, kCols = 4112;
  for (const DType type : {DType::f32, DType::bf16}) {
    const Matrix x(type, kTile, 16);
    const Tensor factors(DType::f32, {kCols}), got(type, {kTile, 16});
    std::fill_n(factors.as<float>(), kCols, 0.5f);
    const test::FarRows far(type, kRows, kCols), out(type, kRows, kCols);
    ASSERT_TRUE(out.view.contiguous());
    far.put(x.view);
    const shim::Launches launches(shim::Blocks::last);
    cuda::scale_columns({}, far.view, factors.view(), out.view);
    out.get(got.view());
    for (std::int64_t r = 0; r < kTile; ++r)
      for (std::int64_t c = 0; c < 16; ++c) ASSERT_EQ(element(got.view(), r, c), x.at(r, c) * 0.5f) << r << ", " << c;
  }
}

TEST(Fold, GridsOfLargeMatrices) {
  const shim::Launches launches(shim::Blocks::none);
  float value = 1;
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{kTile * 65535, 64}, {64, kTile * 65536}}) {
    const View x = tensor::make_view(&value, DType::f32, device::DeviceType::host, {rows, cols});
    cuda::scale_columns({}, x, x.rows(0, 1), x);
  }
  EXPECT_EQ(launches.grids().at(0).y, 65535u);
  EXPECT_EQ(launches.grids().at(1).x, 65536u);
}

TEST(Fold, BytesOfRowsAreTheCodesOfQuantize) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Matrix x(type, 40, 75, Layout::strided_rows);
    x.set(3, 3, std::numeric_limits<float>::quiet_NaN());
    const Tensor bytes(DType::u8, {40, 75}), scales(DType::f32, {40}), there(DType::u8, {40, 75}), s(DType::f32, {40});
    CastCounts counts, expected, device_counts;
    Host host;
    CastOptions options{.power_of_2 = true, .counts = &expected};
    const Quantized q = quantize(host.context, x.view, kRow, ContractionAxis::last, options);
    options.counts = &counts;
    cast_rows_to_bytes(host.context, x.view, DType::e4m3, options, bytes.view(), scales.view());
    options.counts = &device_counts;
    cuda::cast_rows_to_bytes(host.context, x.view, DType::e4m3, options, there.view(), s.view());
    EXPECT_EQ(counts.elements, expected.elements);
    EXPECT_EQ(counts.underflowed, expected.underflowed);
    EXPECT_EQ(device_counts.underflowed, expected.underflowed);
    const View inverse = reciprocals(host.context, scales.view());
    const Quantized back =
        from_bytes(host.context, bytes.view(), DType::e4m3, ContractionAxis::last, scales.view(), inverse);
    EXPECT_EQ(back.granularity, Granularity::row);
    for (int i = 0; i < 40; ++i) {
      ASSERT_TRUE(same(scales.as<float>()[i], q.scale.as<float>()[i]));
      ASSERT_TRUE(same(s.as<float>()[i], q.scale.as<float>()[i]));
      ASSERT_TRUE(same(inverse.as<float>()[i], q.inverse_scale.as<float>()[i]));
    }
    for (int i = 0; i < 40 * 75; ++i) {
      const float code = dtype::to_float(q.codes.as<dtype::Bf16>()[i]);
      ASSERT_TRUE(same(dtype::to_float(back.codes.as<dtype::Bf16>()[i]), code));
      ASSERT_TRUE(same(dtype::from_e4m3(there.as<std::uint8_t>()[i]), code));
    }
    const Quantized folded = without_scales(host.context, q, false);
    EXPECT_EQ(folded.codes.data, q.codes.data);
    EXPECT_EQ(folded.contract, ContractionAxis::first);
    EXPECT_EQ(*folded.inverse_scale.as<float>(), 1.0f);
    const Tensor r(DType::f32, {40});
    cuda::reciprocals({}, s.view(), r.view());
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(same(r.as<float>()[i], inverse.as<float>()[i]));
  }
}

TEST(Fold, BytesOfColumnsAreTheCodesOfQuantize) {
  constexpr std::int64_t kRows = 70, kCols = 1100;  // several pieces of a row
  for (const DType type : {DType::f32, DType::bf16}) {
    Matrix x(type, kRows, kCols, Layout::strided_rows);
    x.set(3, 3, std::numeric_limits<float>::quiet_NaN());
    const Tensor bytes(DType::u8, {kRows, kCols}), there(DType::u8, {kRows, kCols});
    CastCounts counts, expected, device_counts;
    Host host;
    const Quantized q = quantize(host.context, x.view, kRow, ContractionAxis::first, {.counts = &expected});
    cast_columns_to_bytes(host.context, x.view, DType::e4m3, q.scale, bytes.view(), &counts);
    cuda::cast_columns_to_bytes(host.context, x.view, DType::e4m3, q.scale, there.view(), &device_counts);
    for (const CastCounts& c : {counts, device_counts}) {
      EXPECT_EQ(c.elements, expected.elements);
      EXPECT_EQ(c.saturated, expected.saturated);
      EXPECT_EQ(c.underflowed, expected.underflowed);
    }
    const Quantized back =
        from_bytes(host.context, bytes.view(), DType::e4m3, ContractionAxis::first, q.scale, q.inverse_scale);
    EXPECT_EQ(back.granularity, Granularity::row);
    EXPECT_EQ(back.contract, ContractionAxis::first);
    for (std::int64_t i = 0; i < kRows * kCols; ++i) {
      const float code = dtype::to_float(q.codes.as<dtype::Bf16>()[i]);
      ASSERT_TRUE(same(dtype::to_float(back.codes.as<dtype::Bf16>()[i]), code)) << i;
      ASSERT_TRUE(same(dtype::from_e4m3(there.as<std::uint8_t>()[i]), code)) << i;
    }
  }
}

TEST(Fold, Refusals) {
  Host host;
  const Matrix x(DType::bf16, 4, 6);
  const Tensor five(DType::f32, {5}), codes(DType::u8, {4, 6});
  EXPECT_EQ(error_of([&] { scale_columns(host.context, x.view, five.view()); }),
            "scale_columns: needs unit column stride and a factor for each column");
  EXPECT_EQ(error_of([&] { cast_rows_to_bytes(host.context, x.view, DType::e4m3, {}, codes.view(), five.view()); }),
            "cast_rows_to_bytes: codes or scales do not have the shape of the matrix");
  const Quantized whole = quantize(host.context, x.view, {DType::e4m3, Granularity::tensor}, ContractionAxis::last, {});
  EXPECT_EQ(error_of([&] { without_scales(host.context, whole, false); }),
            "without_scales: expected a scale for each row");
  EXPECT_EQ(
      error_of([&] { cast_columns_to_bytes(host.context, x.view, DType::e4m3, five.view(), codes.view(), nullptr); }),
      "cast_columns_to_bytes: codes or scales do not have the shape of the matrix");
}

}  // namespace
}  // namespace fp8::quant
