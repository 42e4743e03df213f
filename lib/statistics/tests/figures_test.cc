// Figures against a plain loop in double precision, which encodes by searching all codes of a format.
#include "fp8/statistics/figures.h"

#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "fp8/device/arena.h"
#include "fp8/device/philox.h"
#include "fp8_test.h"

namespace fp8::statistics {
namespace {

using dtype::DType;
using quant::ContractionAxis;
using quant::Granularity;
using tensor::Tensor;

// The nearest value of a format to `v`, the even code of two; saturated.
double nearest(double v, DType format) {
  double best = 0;
  int best_code = -1;
  for (int code = 0; code < (format == DType::e4m3 ? 0x7F : 0x7C); ++code) {
    const auto c = static_cast<std::uint8_t>(code);
    const double value = static_cast<double>(format == DType::e4m3 ? dtype::from_e4m3(c) : dtype::from_e5m2(c));
    const double d = std::fabs(value - std::fabs(v)), least = std::fabs(best - std::fabs(v));
    if (best_code < 0 || d < least || (d == least && code % 2 == 0)) best = value, best_code = code;
  }
  return std::copysign(best, v);
}

// The figures of elements [r, c] with the scales `scale(r, c)`.
template <class ScaleOf>
Figures plain(const std::vector<float>& x, std::int64_t cols, DType format, ScaleOf scale_of) {
  const double max = format == DType::e4m3 ? 448 : 57344, step = format == DType::e4m3 ? 32 : 8192,
               normal = format == DType::e4m3 ? 0x1p-6 : 0x1p-14;
  Figures f;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const float v = x[i], scale = scale_of(at / cols, at % cols);
    ++f.elements;
    f.of_values.add({scale, scale});
    f.amax = std::max(f.amax, std::fabs(v));
    if (v == 0) continue;
    ++f.nonzero;
    f.smallest = std::min(f.smallest, std::fabs(v));
    ++f.exponents[static_cast<std::size_t>(127 + std::floor(std::log2(static_cast<double>(std::fabs(v)))))];
    ++f.scaled_exponents[static_cast<std::size_t>(127 +
                                                  std::floor(std::log2(static_cast<double>(std::fabs(v * scale)))))];
    const double scaled = static_cast<double>(v * scale), code = nearest(scaled, format);
    f.underflowed += code == 0 ? 1 : 0;
    f.subnormal += code != 0 && std::fabs(code) < normal ? 1 : 0;
    f.saturated += std::fabs(scaled) > max + step / 2 ? 1 : 0;
    const double value = static_cast<double>(v), error = value - code / static_cast<double>(scale);
    f.signal += value * value;
    f.noise += error * error;
  }
  return f;
}

void expect_equal(const Figures& is, const Figures& wanted) {
  EXPECT_EQ(is.elements, wanted.elements);
  EXPECT_EQ(is.nonzero, wanted.nonzero);
  EXPECT_EQ(is.nonfinite, wanted.nonfinite);
  EXPECT_EQ(is.underflowed, wanted.underflowed);
  EXPECT_EQ(is.subnormal, wanted.subnormal);
  EXPECT_EQ(is.saturated, wanted.saturated);
  EXPECT_EQ(is.amax, wanted.amax);
  EXPECT_EQ(is.smallest, wanted.smallest);
  EXPECT_EQ(is.of_values.min, wanted.of_values.min);
  EXPECT_EQ(is.of_values.max, wanted.of_values.max);
  EXPECT_EQ(is.exponents, wanted.exponents);
  EXPECT_EQ(is.scaled_exponents, wanted.scaled_exponents);
  EXPECT_NEAR(is.signal, wanted.signal, 1e-12 * wanted.signal);
  EXPECT_NEAR(is.noise, wanted.noise, 1e-5 * wanted.noise);
}

// Numbers over 40 powers of two, so that some underflow in every format, and zeros.
std::vector<float> values(std::int64_t n) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto u = [&](std::uint64_t k) { return 0x1p-32 * device::philox(7, static_cast<std::uint64_t>(i), k)[0]; };
    const double v = (2 * u(0) - 1) * std::exp2(std::floor(40 * u(1)) - 30);
    x.push_back(i % 7 == 0 ? 0.0f : dtype::to_float(dtype::to_bf16(static_cast<float>(v))));
  }
  return x;
}

class Casts : public ::testing::Test {
 protected:
  static constexpr std::int64_t kRows = 150, kCols = 300;
  Casts() : x_(values(kRows * kCols)) {}

  View as(DType type) {
    tensor_ = Tensor(type, {kRows, kCols});
    for (std::size_t i = 0; i < x_.size(); ++i) {
      if (type == DType::f32) tensor_.as<float>()[i] = x_[i];
      if (type == DType::bf16) tensor_.as<dtype::Bf16>()[i] = dtype::to_bf16(x_[i]);
    }
    return tensor_.view();
  }
  quant::Quantized cast(const View& x, DType format, Granularity granularity, ContractionAxis contract) {
    return quant::quantize(ctx_, x, {format, granularity}, contract, {});
  }
  float amax(std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1) const {
    float most = 0;
    for (std::int64_t r = r0; r < std::min(r1, kRows); ++r)
      for (std::int64_t c = c0; c < std::min(c1, kCols); ++c)
        most = std::max(most, std::fabs(x_[static_cast<std::size_t>(r * kCols + c)]));
    return most;
  }

  device::Arena arena_{std::size_t{64} << 20, device::DeviceType::host};
  Context ctx_{device::DeviceType::host, nullptr, &arena_};
  std::vector<float> x_;
  Tensor tensor_;
};

TEST_F(Casts, ATensorHasOneScale) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const DType format : {DType::e4m3, DType::e5m2}) {
      const View x = as(type);
      const quant::Quantized q = cast(x, format, Granularity::tensor, ContractionAxis::last);
      const float scale = (format == DType::e4m3 ? 448.0f : 57344.0f) / amax(0, kRows, 0, kCols);
      const Figures f = measure({x, scales_of(ctx_, q), format});
      expect_equal(f, plain(x_, kCols, format, [&](auto, auto) { return scale; }));
      EXPECT_EQ(f.scales, 1);
      EXPECT_GT(f.underflowed, 0);
      EXPECT_GT(f.subnormal, 0);
    }
  }
}

TEST_F(Casts, ARowHasAScaleAlongEitherDimension) {
  const View x = as(DType::bf16);
  const quant::Quantized rows = cast(x, DType::e4m3, Granularity::row, ContractionAxis::last);
  expect_equal(measure({x, scales_of(ctx_, rows), DType::e4m3}),
               plain(x_, kCols, DType::e4m3, [&](std::int64_t r, auto) { return 448.0f / amax(r, r + 1, 0, kCols); }));
  const quant::Quantized columns = cast(x, DType::e4m3, Granularity::row, ContractionAxis::first);
  const Figures f = measure({x, scales_of(ctx_, columns), DType::e4m3});
  expect_equal(f,
               plain(x_, kCols, DType::e4m3, [&](auto, std::int64_t c) { return 448.0f / amax(0, kRows, c, c + 1); }));
  EXPECT_EQ(f.scales, kCols);
}

TEST_F(Casts, ABlockHasAScale) {
  const View x = as(DType::bf16);
  struct Case {
    Granularity granularity;
    ContractionAxis contract;
    std::int64_t rows, cols;
  };
  for (const Case& c : {Case{Granularity::block1x128, ContractionAxis::last, 1, 128},
                        Case{Granularity::block1x128, ContractionAxis::first, 128, 1},
                        Case{Granularity::block128x128, ContractionAxis::last, 128, 128},
                        Case{Granularity::block128x128, ContractionAxis::first, 128, 128},
                        Case{Granularity::block1x32, ContractionAxis::last, 1, 32},
                        Case{Granularity::block1x32, ContractionAxis::first, 32, 1}}) {
    const quant::Quantized q = cast(x, DType::e4m3, c.granularity, c.contract);
    std::map<std::pair<std::int64_t, std::int64_t>, float> scales;  // of the blocks so far, by their first element
    const auto scale_of = [&](std::int64_t r, std::int64_t col) {
      const std::int64_t r0 = r / c.rows * c.rows, c0 = col / c.cols * c.cols;
      const auto [at, first] = scales.try_emplace({r0, c0}, 0.0f);
      if (!first) return at->second;
      const float most = amax(r0, r0 + c.rows, c0, c0 + c.cols);
      at->second = c.granularity == Granularity::block1x32
                       ? static_cast<float>(std::exp2(-std::ceil(std::log2(static_cast<double>(most) / 448))))
                       : 448.0f / most;
      return at->second;
    };
    expect_equal(measure({x, scales_of(ctx_, q), DType::e4m3}), plain(x_, kCols, DType::e4m3, scale_of));
  }
}

TEST_F(Casts, ScalesOfZerosCountOnlyWhereAllIsZero) {
  for (const Granularity g :
       {Granularity::row, Granularity::block1x128, Granularity::block128x128, Granularity::block1x32}) {
    for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first}) {
      x_.assign(x_.size(), 1e-3f);
      for (std::int64_t i = 0; i < kRows * kCols; ++i)
        if (i / kCols < 130 || i % kCols < 130) x_[static_cast<std::size_t>(i)] = 0;
      const View some = as(DType::f32);
      const Figures f = measure({some, scales_of(ctx_, cast(some, DType::e4m3, g, contract)), DType::e4m3});
      const float scale = g == Granularity::block1x32 ? 0x1p18f : 448 / 1e-3f;
      EXPECT_EQ(f.scale_range().min, scale);
      EXPECT_EQ(f.scale_range().max, scale);
      x_.assign(x_.size(), 0);
      const View none = as(DType::f32);
      const ScaleGrid scales = scales_of(ctx_, cast(none, DType::e4m3, g, contract));
      Figures zeros = measure({none, scales, DType::e4m3});
      EXPECT_EQ(zeros.scales, f.scales);
      EXPECT_EQ(zeros.scale_range().min, scales.data[0]);
      EXPECT_EQ(zeros.scale_range().max, scales.data[0]);
      zeros += f;
      EXPECT_EQ(zeros.scale_range().min, scale);
      EXPECT_EQ(zeros.scale_range().max, scale);
    }
  }
}

TEST_F(Casts, AScaleOfNanIsNoScaleOfZeros) {
  x_.assign(x_.size(), 0);
  x_[0] = NAN;
  const View x = as(DType::f32);
  const Figures f = measure({x, column_scales(std::vector<float>(kCols, NAN), kRows), DType::e4m3});
  EXPECT_TRUE(std::isnan(f.scale_range().min));
}

TEST_F(Casts, TheNoiseIsThatOfTheCodes) {
  const View x = as(DType::bf16);
  for (const Granularity g : {Granularity::tensor, Granularity::row, Granularity::block1x128, Granularity::block1x32}) {
    const quant::Quantized q = cast(x, DType::e4m3, g, ContractionAxis::first);
    const View y = quant::dequantize(ctx_, q);
    double noise = 0;
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const std::int64_t r = i / kCols, c = i % kCols;
      const double e = static_cast<double>(x_[static_cast<std::size_t>(i)]) -
                       static_cast<double>(y.as<float>()[r * y.stride[0] + c * y.stride[1]]);
      noise += e * e;
    }
    EXPECT_NEAR(measure({x, scales_of(ctx_, q), DType::e4m3}).noise, noise, 1e-6 * noise);
  }
}

TEST_F(Casts, GroupsAddUpToTheWhole) {
  const View x = as(DType::bf16);
  for (const Granularity g :
       {Granularity::tensor, Granularity::row, Granularity::block1x128, Granularity::block128x128}) {
    for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first}) {
      const ScaleGrid scales = scales_of(ctx_, cast(x, DType::e4m3, g, contract));
      const Figures all = measure({x, scales, DType::e4m3});
      const std::vector<GroupFigures> groups = measure_groups({x, scales, DType::e4m3}, contract).groups;
      if (g == Granularity::tensor)
        EXPECT_EQ(groups.size(), static_cast<std::size_t>(contract == ContractionAxis::last ? kRows : kCols));
      else
        EXPECT_EQ(groups.size(), static_cast<std::size_t>(scales.count));
      GroupFigures sum;
      for (const GroupFigures& one : groups) {
        sum.nonzero += one.nonzero;
        sum.underflowed += one.underflowed;
        sum.saturated += one.saturated;
        sum.signal += one.signal;
        sum.noise += one.noise;
        sum.amax = std::max(sum.amax, one.amax);
      }
      EXPECT_EQ(sum.nonzero, all.nonzero);
      EXPECT_EQ(sum.underflowed, all.underflowed);
      EXPECT_EQ(sum.saturated, all.saturated);
      EXPECT_EQ(sum.amax, all.amax);
      EXPECT_NEAR(sum.signal, all.signal, 1e-9 * all.signal);
      EXPECT_NEAR(sum.noise, all.noise, 1e-9 * all.noise);
    }
  }
}

TEST_F(Casts, GroupsOfPartsAreThoseOfTheWhole) {
  const View x = as(DType::bf16);
  const ScaleGrid one = scales_of(ctx_, cast(x, DType::e4m3, Granularity::tensor, ContractionAxis::last)),
                  blocks{.data = std::vector<float>(12, 0.5f), .rows = 50, .cols = 75, .stride_r = 4, .stride_c = 1};
  const auto groups = [](const View& v, const ScaleGrid& scales, ContractionAxis contract) {
    return measure_groups({v, scales, DType::e4m3}, contract);
  };
  const auto expect = [](const GroupGrid& parts, const GroupGrid& whole) {
    ASSERT_EQ(parts.groups.size(), whole.groups.size());
    EXPECT_EQ(parts.across, whole.across);
    for (std::size_t i = 0; i < whole.groups.size(); ++i) {
      const GroupFigures &a = parts.groups[i], &b = whole.groups[i];
      EXPECT_EQ(a.nonzero, b.nonzero);
      EXPECT_EQ(a.underflowed, b.underflowed);
      EXPECT_EQ(a.amax, b.amax);
      EXPECT_NEAR(a.noise, b.noise, 1e-9 * b.noise);
    }
  };
  constexpr std::int64_t kMiddle = 75;
  for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first}) {
    const bool last = contract == ContractionAxis::last;
    GroupGrid rows = groups(x.rows(0, 40), one, contract), columns = groups(x.columns(0, kMiddle), one, contract);
    join(rows, groups(x.rows(40, kRows), one, contract), last ? PartJoin::rows : PartJoin::inside);
    join(columns, groups(x.columns(kMiddle, kCols), one, contract), last ? PartJoin::inside : PartJoin::columns);
    expect(rows, groups(x, one, contract));
    expect(columns, groups(x, one, contract));
  }
  GroupGrid parts;
  join(parts, {}, PartJoin::inside);
  for (const auto& [begin, end] : {std::pair(std::int64_t{0}, kMiddle), {kMiddle, kCols}})
    join(parts, groups(x.columns(begin, end), blocks, ContractionAxis::last), PartJoin::columns);
  expect(parts, groups(x, blocks, ContractionAxis::last));
  EXPECT_NE(test::error_of([&] { join(parts, groups(x, one, ContractionAxis::first), PartJoin::inside); }), "");
}

TEST_F(Casts, SaturationAndNonFiniteElementsAreCounted) {
  Tensor t(DType::f32, {1, 6});
  const std::vector<float> x{1, -500, 460, 470, NAN, INFINITY};
  std::copy(x.begin(), x.end(), t.as<float>());
  const Figures f = measure({t.view(), {.data = {1.0f}, .rows = 1, .cols = 6}, DType::e4m3});
  EXPECT_EQ(f.nonfinite, 2);
  EXPECT_EQ(f.nonzero, 4);
  EXPECT_EQ(f.saturated, 2);  // 460 is within half a spacing of 448
  EXPECT_TRUE(std::isnan(f.amax));
  EXPECT_EQ(f.noise, 52.0 * 52 + 12.0 * 12 + 22.0 * 22);
  EXPECT_EQ(f.share(f.saturated), 0.5);
}

TEST(Figures, OfZerosHaveNoSqnr) {
  Tensor t(DType::bf16, {3, 3});
  const Figures f = measure({t.view(), {.data = {1.0f}, .rows = 3, .cols = 3}, DType::e5m2});
  EXPECT_EQ(f.nonzero, 0);
  EXPECT_EQ(f.share(0), 0);
  EXPECT_EQ(f.dynamic_range(), 0);
  EXPECT_TRUE(std::isnan(f.sqnr_db()));
}

}  // namespace
}  // namespace fp8::statistics
