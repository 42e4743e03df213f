// Casts of matrices compared with a loop over single elements, in every type, format, granularity, contraction axis and
// layout; counts; threads; dry runs; errors.
#include "fp8/quant/quantize.h"

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
using tensor::Tensor;

std::vector<Case> quantize_cases() {
  std::vector<Case> all;
  for (const DType type : {DType::f32, DType::bf16})
    for (const DType format : {DType::e4m3, DType::e5m2})
      for (const Granularity granularity : {Granularity::tensor, Granularity::row})
        for (const ContractionAxis contract : {ContractionAxis::last, ContractionAxis::first})
          for (const Layout layout : {Layout::contiguous, Layout::strided_rows, Layout::columns_first})
            all.push_back({type, {format, granularity}, contract, layout});
  return all;
}

class Quantize : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, Quantize, ::testing::ValuesIn(quantize_cases()));

std::uint8_t encode(DType format, float v) { return format == DType::e4m3 ? dtype::to_e4m3(v) : dtype::to_e5m2(v); }
float decode(DType format, std::uint8_t c) { return format == DType::e4m3 ? dtype::from_e4m3(c) : dtype::from_e5m2(c); }

// x * scale in f32, through memory, so that the compiler keeps no more precision.
float scaled(float x, float scale) {
  volatile float product = x * scale;
  return product;
}

// Amax of the elements that share a scale with (r, c).
float shared_amax(const Matrix& x, const Case& t, std::int64_t r, std::int64_t c) {
  const bool all = t.cast.granularity == Granularity::tensor;
  float largest = 0;
  for (std::int64_t i = 0; i < x.view.shape[0]; ++i)
    for (std::int64_t j = 0; j < x.view.shape[1]; ++j) {
      const bool shares = all || (t.contract == ContractionAxis::last ? i == r : j == c);
      if (shares) largest = std::max(largest, std::fabs(x.at(i, j)));
    }
  return largest;
}

TEST_P(Quantize, AgreesWithSingleElements) {
  const Case& t = GetParam();
  const Matrix x(t.type, 9, 71, t.layout);
  for (const bool power_of_2 : {false, true}) {
    Host host;
    CastCounts counts, expected_counts{.elements = 9 * 71};
    const Quantized q = quantize(host.context, x.view, t.cast, t.contract, {power_of_2, &counts});
    EXPECT_EQ(q.format, t.cast.format);
    EXPECT_EQ(q.granularity, t.cast.granularity);
    ASSERT_EQ(q.codes.dtype, DType::bf16);
    ASSERT_EQ(q.codes.shape[0], 9);
    ASSERT_EQ(q.codes.shape[1], 71);
    const bool per_row = t.contract == ContractionAxis::last;
    ASSERT_EQ(q.inverse_scale.size(), t.cast.granularity == Granularity::tensor ? 1 : per_row ? 9 : 71);
    for (std::int64_t r = 0; r < 9; ++r)
      for (std::int64_t c = 0; c < 71; ++c) {
        const float scale = scale_from_amax(shared_amax(x, t, r, c), dtype::max_of(t.cast.format), power_of_2);
        const float expected = decode(t.cast.format, encode(t.cast.format, scaled(x.at(r, c), scale)));
        const float code = dtype::to_float(q.codes.as<Bf16>()[r * q.codes.stride[0] + c * q.codes.stride[1]]);
        ASSERT_TRUE(same(code, expected)) << r << ", " << c << ": " << code << " not " << expected;
        const std::int64_t s = t.cast.granularity == Granularity::tensor ? 0 : per_row ? r : c;
        ASSERT_EQ(q.inverse_scale.as<float>()[s], 1.0f / scale);
        expected_counts.underflowed += expected == 0 && x.at(r, c) != 0;
      }
    EXPECT_EQ(counts.elements, expected_counts.elements);
    EXPECT_EQ(counts.saturated, 0) << "the amax itself does not saturate";
    EXPECT_EQ(counts.underflowed, expected_counts.underflowed);
  }
}

TEST_P(Quantize, IsIndependentOfThreads) {
  const Case& t = GetParam();
  const Matrix x(t.type, 157, 331, t.layout);
  const int threads = omp_get_max_threads();
  Host one_host, many_host;
  CastCounts one_count, many_count;
  omp_set_num_threads(1);
  const Quantized one = quantize(one_host.context, x.view, t.cast, t.contract, {false, &one_count});
  omp_set_num_threads(5);
  const Quantized many = quantize(many_host.context, x.view, t.cast, t.contract, {false, &many_count});
  omp_set_num_threads(threads);
  for (std::int64_t i = 0; i < x.view.size(); ++i)
    ASSERT_EQ(one.codes.as<Bf16>()[i].bits, many.codes.as<Bf16>()[i].bits);
  for (std::int64_t i = 0; i < one.inverse_scale.size(); ++i)
    ASSERT_EQ(one.inverse_scale.as<float>()[i], many.inverse_scale.as<float>()[i]);
  EXPECT_EQ(one_count.underflowed, many_count.underflowed);
  EXPECT_GT(one_count.elements, 0);
}

TEST_P(Quantize, BytesAreTheSameCodes) {
  const Case& t = GetParam();
  const Matrix x(t.type, 61, 301, t.layout);
  for (const float scale : {0x1p-13f, 1.0f, 3.0f, 1e6f}) {
    const Tensor codes(DType::u8, {61, 301});
    CastCounts counts, expected{.elements = 61 * 301};
    cast_to_bytes(Context{}, x.view, t.cast.format, &scale, codes.view(), &counts);
    for (std::int64_t r = 0; r < 61; ++r)
      for (std::int64_t c = 0; c < 301; ++c) {
        const float v = scaled(x.at(r, c), scale);
        const std::uint8_t code = encode(t.cast.format, v);
        ASSERT_EQ(codes.as<std::uint8_t>()[r * 301 + c], code);
        expected.saturated += std::fabs(v) > (t.cast.format == DType::e4m3 ? 464.0f : 61440.0f);
        expected.underflowed += (code & 0x7F) == 0 && x.at(r, c) != 0;
      }
    EXPECT_EQ(counts.elements, expected.elements);
    EXPECT_EQ(counts.saturated, expected.saturated);
    EXPECT_EQ(counts.underflowed, expected.underflowed);
    if (scale == 1e6f) {
      EXPECT_GT(counts.saturated, 0);
    }
  }
}

TEST(CastCounts, AreExactAtTheEdges) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  struct Edge {
    float value;
    std::int64_t saturated, underflowed;
  };
  const std::vector<Edge> edges{
      {464.0f, 0, 0},   {std::nextafterf(464.0f, inf), 1, 0},    {-inf, 1, 0},  {nan, 0, 0},
      {0x1p-10f, 0, 1}, {std::nextafterf(0x1p-10f, 1.0f), 0, 0}, {-0.0f, 0, 0}, {-0x1p-149f, 0, 1}};
  const float scale = 1.0f;
  for (const Edge& e : edges) {
    Matrix x(DType::f32, 1, 1);
    x.set(0, 0, e.value);
    const Tensor codes(DType::u8, {1, 1});
    CastCounts counts{.elements = 10, .saturated = 20, .underflowed = 30};
    cast_to_bytes(Context{}, x.view, DType::e4m3, &scale, codes.view(), &counts);
    EXPECT_EQ(counts.elements, 11);
    EXPECT_EQ(counts.saturated, 20 + e.saturated) << e.value;
    EXPECT_EQ(counts.underflowed, 30 + e.underflowed) << e.value;
  }
}

TEST(QuantizeOf, NonFiniteElementsAffectTheirScaleOnly) {
  Matrix x(DType::bf16, 3, 40);
  x.set(1, 7, std::numeric_limits<float>::infinity());
  x.set(2, 8, std::numeric_limits<float>::quiet_NaN());
  Host host;
  const Quantized q = quantize(host.context, x.view, {DType::e4m3, Granularity::row}, ContractionAxis::last, {});
  const auto* codes = q.codes.as<Bf16>();
  EXPECT_TRUE(std::isfinite(q.inverse_scale.as<float>()[0]));
  EXPECT_EQ(q.inverse_scale.as<float>()[1], std::numeric_limits<float>::infinity()) << "scale 0";
  EXPECT_TRUE(std::isnan(q.inverse_scale.as<float>()[2]));
  for (std::int64_t c = 0; c < 40; ++c) {
    EXPECT_TRUE(std::isfinite(dtype::to_float(codes[c])));
    EXPECT_EQ(std::isnan(dtype::to_float(codes[40 + c])), c == 7);
    EXPECT_TRUE(std::isnan(dtype::to_float(codes[80 + c])));
  }
}

TEST(QuantizeOf, HighPrecisionRefersToTheSource) {
  Host host;
  const Matrix x(DType::bf16, 4, 4, Layout::columns_first);
  CastCounts counts;
  const Quantized q = quantize(host.context, x.view, {}, ContractionAxis::first, {false, &counts});
  EXPECT_EQ(q.codes.data, x.view.data);
  EXPECT_EQ(q.codes.stride, x.view.stride);
  EXPECT_EQ(q.format, DType::bf16);
  EXPECT_EQ(q.granularity, Granularity::none);
  EXPECT_TRUE(q.inverse_scale.empty());
  EXPECT_EQ(counts.elements, 0);
  EXPECT_EQ(host.context.arena->peak(), 0u);
}

TEST(QuantizeOf, EmptyMatrices) {
  for (const auto& [rows, cols] : {std::pair{0, 16}, {16, 0}, {0, 0}})
    for (const Granularity granularity : {Granularity::tensor, Granularity::row}) {
      Host host;
      const Tensor x(DType::bf16, {rows, cols});
      CastCounts counts;
      const Quantized q =
          quantize(host.context, x.view(), {DType::e4m3, granularity}, ContractionAxis::last, {false, &counts});
      EXPECT_EQ(q.codes.size(), 0);
      EXPECT_EQ(q.inverse_scale.size(), granularity == Granularity::tensor ? 1 : rows);
      EXPECT_EQ(counts.elements, 0);
    }
}

TEST(QuantizeOf, DryRunAllocatesTheSameMemory) {
  const Matrix x(DType::bf16, 33, 65);
  const Tensor codes(DType::u8, {33, 65}), inverse_scale(DType::f32, {1});
  Host host;
  device::Arena dry_arena;
  const Context dry{.arena = &dry_arena, .dry = true};
  CastCounts counts;
  for (const Context& ctx : {host.context, dry}) {
    quantize(ctx, x.view, {DType::e4m3, Granularity::row}, ContractionAxis::first, {false, &counts});
    quantize(ctx, x.view.transposed(), {DType::e5m2, Granularity::tensor}, ContractionAxis::first, {false, &counts});
    from_bytes(ctx, codes.view(), DType::e4m3, ContractionAxis::last, inverse_scale.view(), inverse_scale.view());
  }
  EXPECT_EQ(dry_arena.peak(), host.context.arena->peak());
  EXPECT_EQ(dry_arena.usage_at_peak().at(0).category, "fp8 codes");
  EXPECT_EQ(counts.elements, 2 * 33 * 65) << "dry runs count nothing";
}

TEST(QuantizeBoth, EqualsTwoCastsAndCountsSharedCodesOnce) {
  const Matrix x(DType::bf16, 33, 65);
  const Cast tensor{DType::e5m2, Granularity::tensor}, rows{DType::e4m3, Granularity::row};
  for (const CastPair& casts :
       {CastPair{tensor, tensor}, CastPair{rows, rows}, CastPair{rows, tensor}, CastPair{rows, {}}}) {
    Host host;
    CastCounts counts, expected;
    const QuantizedPair both = quantize_both(host.context, x.view, casts, {false, &counts});
    const Quantized last = quantize(host.context, x.view, casts.last, ContractionAxis::last, {false, &expected});
    const Quantized first = quantize(host.context, x.view, casts.first, ContractionAxis::first,
                                     {false, casts.shared() ? nullptr : &expected});
    EXPECT_EQ(both.last.codes.data == both.first.codes.data, casts.shared());
    EXPECT_EQ(both.first.contract, ContractionAxis::first);
    EXPECT_EQ(both.first.granularity, casts.first.granularity);
    for (int i = 0; i < 33 * 65; ++i) {
      ASSERT_EQ(both.last.codes.as<Bf16>()[i].bits, last.codes.as<Bf16>()[i].bits);
      ASSERT_EQ(both.first.codes.as<Bf16>()[i].bits, first.codes.as<Bf16>()[i].bits);
    }
    EXPECT_EQ(counts.elements, expected.elements);
    EXPECT_EQ(counts.underflowed, expected.underflowed);
  }
}

TEST(ScalesFromAmax, EachAmaxHasItsScale) {
  const Tensor amax(DType::f32, {3}), scales(DType::f32, {3}), inverse(DType::f32, {3}), two(DType::f32, {2});
  amax.as<float>()[0] = 3.0f;
  amax.as<float>()[2] = 700.0f;
  for (const bool power_of_2 : {false, true}) {
    scales_from_amax(Context{}, amax.view(), {DType::e4m3, ScaleRule::torchao, power_of_2}, scales.view(),
                     inverse.view());
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(scales.as<float>()[i], scale_from_amax(amax.as<float>()[i], 448.0f, power_of_2));
      EXPECT_EQ(inverse.as<float>()[i], 1.0f / scales.as<float>()[i]);
    }
  }
  EXPECT_EQ(error_of([&] { scales_from_amax(Context{}, amax.view(), {}, two.view(), inverse.view()); }),
            "scales_from_amax: amaxes and scales differ in number");
}

// The amax of current leaves out NaN; an amax of 0 or infinity gives scale 1, and saturates.
TEST(Current, NaNInfinityAndZeros) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const CastOptions options{.rule = ScaleRule::current};
  for (const DType type : {DType::f32, DType::bf16})
    for (const Layout layout : {Layout::contiguous, Layout::strided_rows, Layout::columns_first}) {
      Matrix x(type, 70, 300, layout);
      const Cast cast{DType::e4m3, Granularity::tensor};
      Host host;
      const auto scale = [&] {
        const Quantized q = quantize(host.context, x.view, cast, ContractionAxis::last, options);
        EXPECT_EQ(*q.inverse_scale.as<float>(), 1.0f / *q.scale.as<float>());
        return std::pair{*q.scale.as<float>(), q.codes};
      };
      x.set(3, 5, -28.0f);
      x.set(69, 299, nan);
      x.set(1, 1, -nan);
      EXPECT_EQ(scale().first, 16.0f);
      const auto code = [&](const tensor::View& codes, std::int64_t r, std::int64_t c) {
        return dtype::to_float(codes.as<Bf16>()[r * codes.stride[0] + c * codes.stride[1]]);
      };
      EXPECT_TRUE(std::isnan(code(scale().second, 69, 299)));
      EXPECT_EQ(code(scale().second, 3, 5), -448.0f);
      x.set(0, 0, -inf);
      EXPECT_EQ(scale().first, 1.0f);
      EXPECT_EQ(code(scale().second, 0, 0), -448.0f);
      for (std::int64_t r = 0; r < 70; ++r)
        for (std::int64_t c = 0; c < 300; ++c) x.set(r, c, 0.0f);
      EXPECT_EQ(scale().first, 1.0f);
    }
  const Tensor out(DType::f32, {70});
  const Matrix x(DType::f32, 70, 30);
  EXPECT_EQ(error_of([&] { amax(Context{}, x.view, Granularity::row, ContractionAxis::last, out.view(), true); }),
            "amax: NaN is left out of whole tensors only");
}

TEST(FromBytes, UpcastsEveryCode) {
  const Tensor codes(DType::u8, {256, 200}), inverse_scale(DType::f32, {1});
  for (int i = 0; i < 256 * 200; ++i) codes.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i % 256);
  for (const DType format : {DType::e4m3, DType::e5m2}) {
    Host host;
    const Quantized q = from_bytes(host.context, codes.view(), format, ContractionAxis::first, inverse_scale.view(),
                                   inverse_scale.view());
    EXPECT_EQ(q.format, format);
    EXPECT_EQ(q.granularity, Granularity::tensor);
    EXPECT_EQ(q.inverse_scale.data, inverse_scale.view().data);
    for (int i = 0; i < 256 * 200; ++i)
      ASSERT_TRUE(same(dtype::to_float(q.codes.as<Bf16>()[i]), decode(format, static_cast<std::uint8_t>(i % 256))));
  }
}

TEST(FromBytes, UndoesCastToBytes) {
  const Matrix x(DType::bf16, 50, 100);
  const Cast cast{DType::e4m3, Granularity::tensor};
  Host host;
  const Quantized direct = quantize(host.context, x.view, cast, ContractionAxis::last, {});
  const float scale = scale_from_amax(
      shared_amax(x, {DType::bf16, cast, ContractionAxis::last, Layout::contiguous}, 0, 0), 448.0f, false);
  const Tensor codes(DType::u8, {50, 100});
  cast_to_bytes(host.context, x.view, DType::e4m3, &scale, codes.view(), nullptr);
  const Quantized from =
      from_bytes(host.context, codes.view(), DType::e4m3, ContractionAxis::last, direct.scale, direct.inverse_scale);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(from.codes.as<Bf16>()[i].bits, direct.codes.as<Bf16>()[i].bits);
}

TEST(QuantizeOf, Refusals) {
  Host host;
  const Matrix x(DType::bf16, 4, 6);
  const Tensor other(DType::u8, {4, 5}), two(DType::f32, {2}), codes(DType::u8, {4, 6});
  const float scale = 1.0f;
  Context cuda = host.context;
  cuda.device = device::DeviceType::cuda;
  const Cast cast{DType::e4m3, Granularity::tensor}, wrong{DType::bf16, Granularity::tensor};
  EXPECT_EQ(error_of([&] { quantize(cuda, x.view, cast, ContractionAxis::last, {}); }),
            "quantize: the matrix is in host memory, not on the GPU");
  EXPECT_EQ(error_of([&] { quantize(host.context, x.view, wrong, ContractionAxis::last, {}); }),
            "bfloat16: not an FP8 format");
  EXPECT_EQ(error_of([&] { quantize(host.context, codes.view(), cast, ContractionAxis::last, {}); }),
            "quantize: expected float32 or bfloat16, not uint8");
  EXPECT_EQ(error_of([&] { quantize(host.context, x.view, cast, ContractionAxis::last, {.amax = two.view()}); }),
            "quantize: a known amax is one number for a whole tensor");
  EXPECT_EQ(error_of([&] { cast_to_bytes(host.context, x.view, DType::e4m3, &scale, other.view(), nullptr); }),
            "cast_to_bytes: codes are not contiguous or differ from the matrix in shape");
  EXPECT_EQ(error_of([&] { cast_to_bytes(host.context, x.view, DType::e8m0, &scale, codes.view(), nullptr); }),
            "float8_e8m0fnu: not an FP8 format");
  EXPECT_EQ(error_of([&] {
              from_bytes(host.context, codes.view().transposed(), DType::e4m3, ContractionAxis::first,
                         two.view().rows(0, 1), two.view().rows(0, 1));
            }),
            "from_bytes: codes are not a contiguous matrix");
  EXPECT_EQ(error_of([&] {
              from_bytes(host.context, codes.view(), DType::e4m3, ContractionAxis::first, two.view(), two.view());
            }),
            "from_bytes: expected one scale and one inverse scale, or one for each row, column or block");
  EXPECT_EQ(error_of([&] {
              from_bytes(host.context, codes.view(), DType::f32, ContractionAxis::first, two.view().rows(0, 1),
                         two.view().rows(0, 1));
            }),
            "float32: not an FP8 format");
  EXPECT_EQ(error_of([&] {
              from_bytes(cuda, codes.view(), DType::e4m3, ContractionAxis::first, two.view().rows(0, 1),
                         two.view().rows(0, 1));
            }),
            "from_bytes: the matrix is in host memory, not on the GPU");
}

}  // namespace
}  // namespace fp8::quant
