// Amaxes of rows, of columns and of the whole matrix, in every layout, compared with plain loops; NaN and infinity;
// errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "matrices.h"

namespace fp8::quant {
namespace {

using dtype::DType;
using tensor::Tensor;

struct AmaxCase {
  DType type;
  Layout layout;
  std::int64_t rows, cols;
};

class Amax : public ::testing::TestWithParam<AmaxCase> {};

std::vector<AmaxCase> amax_cases() {
  std::vector<AmaxCase> all;
  for (const DType type : {DType::f32, DType::bf16})
    for (const Layout layout : {Layout::contiguous, Layout::strided_rows, Layout::columns_first})
      for (const auto& [rows, cols] : {std::pair{1, 1}, {1, 40}, {40, 1}, {7, 13}, {3, 20011}, {601, 67}})
        all.push_back({type, layout, rows, cols});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Amax, ::testing::ValuesIn(amax_cases()));

std::vector<float> amaxes(const View& x, Granularity granularity, ContractionAxis contract, std::int64_t count) {
  const Tensor out(DType::f32, {count});
  amax(Context{}, x, granularity, contract, out.view());
  return {out.as<float>(), out.as<float>() + count};
}

TEST_P(Amax, AgreesWithPlainLoops) {
  const auto [type, layout, rows, cols] = GetParam();
  const Matrix x(type, rows, cols, layout);
  std::vector<float> of_row(static_cast<std::size_t>(rows)), of_column(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      float& row = of_row[static_cast<std::size_t>(r)];
      float& column = of_column[static_cast<std::size_t>(c)];
      row = std::max(row, std::fabs(x.at(r, c)));
      column = std::max(column, std::fabs(x.at(r, c)));
    }
  EXPECT_EQ(amaxes(x.view, Granularity::row, ContractionAxis::last, rows), of_row);
  EXPECT_EQ(amaxes(x.view, Granularity::row, ContractionAxis::first, cols), of_column);
  EXPECT_EQ(amaxes(x.view, Granularity::tensor, ContractionAxis::last, 1)[0],
            *std::max_element(of_row.begin(), of_row.end()));
}

TEST_P(Amax, NonFiniteElementsAffectTheirRowAndColumnOnly) {
  const auto [type, layout, rows, cols] = GetParam();
  Matrix x(type, rows, cols, layout);
  const std::int64_t r = rows / 2, c = cols / 2;
  for (const float poison : {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
    x.set(r, c, poison);
    const float expected = std::fabs(poison);
    EXPECT_TRUE(same(amaxes(x.view, Granularity::tensor, ContractionAxis::first, 1)[0], expected));
    const auto of_row = amaxes(x.view, Granularity::row, ContractionAxis::last, rows);
    const auto of_column = amaxes(x.view, Granularity::row, ContractionAxis::first, cols);
    for (std::int64_t i = 0; i < rows; ++i) {
      const float v = of_row[static_cast<std::size_t>(i)];
      EXPECT_TRUE(i == r ? same(v, expected) : std::isfinite(v));
    }
    for (std::int64_t i = 0; i < cols; ++i) {
      const float v = of_column[static_cast<std::size_t>(i)];
      EXPECT_TRUE(i == c ? same(v, expected) : std::isfinite(v));
    }
  }
}

TEST(AmaxOf, OfAnEmptyMatrixIsZero) {
  const Tensor none(DType::bf16, {0, 8});
  EXPECT_EQ(amaxes(none.view(), Granularity::tensor, ContractionAxis::last, 1), std::vector<float>{0.0f});
  EXPECT_EQ(amaxes(none.view(), Granularity::row, ContractionAxis::first, 8), std::vector<float>(8, 0.0f));
  EXPECT_EQ(amaxes(none.view(), Granularity::row, ContractionAxis::last, 0), std::vector<float>{});
}

TEST(AmaxOf, DryRunWritesNothing) {
  const Tensor x(DType::bf16, {4, 4}), out(DType::f32, {1});
  *out.as<float>() = 5.0f;
  amax(Context{.dry = true}, x.view(), Granularity::tensor, ContractionAxis::last, out.view());
  EXPECT_EQ(*out.as<float>(), 5.0f);
}

TEST(AmaxOf, Refusals) {
  const Tensor x(DType::bf16, {4, 6}), out(DType::f32, {4}), codes(DType::u8, {4, 6}), cube(DType::f32, {2, 2, 2});
  const auto refusal = [&](const View& v, Granularity g, const View& to,
                           device::DeviceType device = device::DeviceType::host) {
    return error_of([&] { amax(Context{.device = device}, v, g, ContractionAxis::last, to); });
  };
  EXPECT_EQ(refusal(x.view(), Granularity::tensor, out.view()), "amax: the result has 4 elements, not 1");
  EXPECT_EQ(refusal(x.view().transposed(), Granularity::row, out.view()), "amax: the result has 4 elements, not 6");
  EXPECT_EQ(refusal(codes.view(), Granularity::row, out.view()), "amax: expected float32 or bfloat16, not uint8");
  EXPECT_EQ(refusal(cube.view(), Granularity::row, out.view()), "amax: expected a matrix of 2 dimensions, not 3");
  EXPECT_EQ(refusal(x.view(), Granularity::row, out.view(), device::DeviceType::cuda),
            "amax: the matrix is in host memory, not on the GPU");
  View scattered = x.view();
  scattered.shape = {2, 3};
  scattered.stride = {12, 2};
  EXPECT_EQ(refusal(scattered, Granularity::tensor, out.view().rows(0, 1)), "amax: neither dimension has unit stride");
}

}  // namespace
}  // namespace fp8::quant
