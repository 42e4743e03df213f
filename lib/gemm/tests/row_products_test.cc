// GEMMs with HostSums::fixed: values, bits that depend on K alone, and the definition of the order of sums.
#include "row_products.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>

#include "isas.h"
#include "matrices.h"

namespace fp8::gemm::testing {
namespace {

// [rows, columns] of values from -1 to 1 whose sums are rounded.
Tensor uneven(DType type, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Tensor t(type, {rows, columns});
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const auto word = device::philox(seed, static_cast<std::uint64_t>(i), 1)[0];
    const float value = 2 * device::unit_interval(word) - 1;
    if (type == DType::f32) t.as<float>()[i] = value;
    if (type == DType::bf16) t.as<Bf16>()[i] = dtype::to_bf16(value);
  }
  return t;
}

// The sum as row_products.h defines it.
float defined_sum(const View& x, const View& w, std::int64_t i, std::int64_t j) {
  float sum[16] = {};
  for (std::int64_t k = 0; k < x.shape[1]; ++k) sum[k % 16] = std::fma(get(x, i, k), get(w, j, k), sum[k % 16]);
  for (std::size_t width = 8; width > 0; width /= 2)
    for (std::size_t l = 0; l < width; ++l) sum[l] += sum[l + width];
  return sum[0];
}

class RowProductsTest : public ::testing::TestWithParam<DType> {
 protected:
  Tensor product(const View& x, const View& w, const MatmulOptions& options = {}) {
    Tensor c(DType::f32, {x.shape[0], w.shape[0]});
    engine_.matmul(Context{}, plain(x), plain(w.transposed()), c.view(), options);
    return c;
  }
  Engine engine_{HostBf16::detect, HostSums::fixed};
};

TEST_P(RowProductsTest, SumsAreAsDefined) {
  for (const std::int64_t k : {1, 15, 16, 17, 100, 768}) {
    for (const std::int64_t m : {1, 2, 3, 4, 5, 9}) {
      const Tensor x = uneven(GetParam(), m, k, 1), w = uneven(GetParam(), 71, k, 2);
      const Tensor c = product(x.view(), w.view());
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < 71; ++j)
          ASSERT_EQ(get(c.view(), i, j), defined_sum(x.view(), w.view(), i, j))
              << m << "x" << k << " " << i << "," << j;
    }
  }
}

TEST_P(RowProductsTest, EveryInstructionSetGivesTheSameBits) {
  const std::int64_t k = 203, m = RowProductKernels::kRows, n = 33;
  const Tensor x = uneven(DType::f32, m, k, 3), w = uneven(GetParam(), n, k, 4);
  const RowBlock<float> left{x.as<float>(), k, m};
  for (const Isa isa : test::isas()) {
    std::vector<float> sums(static_cast<std::size_t>(m * n));
    if (GetParam() == DType::f32)
      row_product_kernels(isa).f32(k, left, {w.as<float>(), k, n}, sums.data(), n);
    else
      row_product_kernels(isa).bf16(k, left, {w.as<Bf16>(), k, n}, sums.data(), n);
    for (std::int64_t i = 0; i < m * n; ++i)
      ASSERT_EQ(sums[static_cast<std::size_t>(i)], defined_sum(x.view(), w.view(), i / n, i % n)) << name_of(isa);
  }
}

TEST_P(RowProductsTest, ThreadsAndOtherRowsDoNotChangeBits) {
  const Tensor x = uneven(GetParam(), 7, 512, 5), w = uneven(GetParam(), 1000, 512, 6);
  const Tensor all = product(x.view(), w.view());
  const int before = omp_get_max_threads();
  for (const int threads : {1, 2, 3, 7}) {
    omp_set_num_threads(threads);
    for (std::int64_t i = 0; i < 7; ++i) {
      const Tensor row = product(x.view().rows(i, i + 1), w.view());
      EXPECT_EQ(std::memcmp(row.as<float>(), all.as<float>() + i * 1000, 1000 * sizeof(float)), 0)
          << threads << ", " << i;
    }
  }
  omp_set_num_threads(before);
}

TEST_P(RowProductsTest, ScalesBiasStridesAndRoundingAreThoseOfMatmul) {
  for (const std::int64_t m : {1, 6}) {
    const Matrix x = integers(GetParam(), m, 40, Layout::wide, 1), w = integers(GetParam(), 50, 40, Layout::wide, 2);
    const Tensor one = odd_scales(1, 1.7f), rows = odd_scales(m, 5.1f), columns = odd_scales(50, 0.9f),
                 bias = odd_scales(50, 2.0f);
    for (const DType out : {DType::f32, DType::bf16}) {
      for (const View& of_rows : {View{}, one.view(), rows.view()}) {
        const Operand a{x.view, x.view.dtype, of_rows}, b{w.view.transposed(), w.view.dtype, columns.view()};
        MatmulOptions options;
        options.bias = bias.view();
        options.accumulate = out == DType::f32;
        const Matrix c = integers(out, m, 50, Layout::wide, 3), before = integers(out, m, 50, Layout::wide, 3);
        engine_.matmul(Context{}, a, b, c.view, options);
        EXPECT_FALSE(first_difference(c.view, expected(a, b, before.view, options)).has_value());
      }
    }
  }
}

TEST_P(RowProductsTest, OtherLayoutsUseTheLibrary) {
  const Matrix a = integers(GetParam(), 5, 40, Layout::rows, 1), b = integers(GetParam(), 40, 50, Layout::rows, 2);
  const Matrix c = integers(DType::f32, 5, 50, Layout::rows, 3);
  engine_.matmul(Context{}, plain(a.view), plain(b.view), c.view, {});
  EXPECT_FALSE(first_difference(c.view, expected(plain(a.view), plain(b.view), c.view, {})).has_value());
  const Tensor none(GetParam(), {5, 0}), w(GetParam(), {50, 0});
  Tensor zeros = product(none.view(), w.view());
  EXPECT_EQ(get(zeros.view(), 4, 49), 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Types, RowProductsTest, ::testing::Values(DType::f32, DType::bf16));

}  // namespace
}  // namespace fp8::gemm::testing
