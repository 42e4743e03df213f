// Building blocks of kernels: reductions over blocks, magnitudes.
#include "cuda_shim.h"
//
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <numeric>

#include "fp8/device/kernel.h"
#include "fp8/device/magnitudes.h"

namespace fp8::device {
namespace {

constexpr int kThreads = 96;

void sum_and_largest(const float* x, std::int64_t n, float* sum, float* largest) {
  float s = 0;
  unsigned m = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    s += x[i];
    m = LargestBits{}(m, std::bit_cast<unsigned>(x[i]) & 0x7FFFFFFFu);
  }
  s = block_combine<kThreads>(s, Add{});
  m = block_combine<kThreads>(m, LargestBits{});
  sum[threadIdx.x] = s;
  largest[threadIdx.x] = std::bit_cast<float>(m);
}

TEST(Kernel, BlockCombineIsEqualInEveryThread) {
  std::vector<float> x(1000), sum(kThreads), largest(kThreads);
  std::iota(x.begin(), x.end(), -500.0f);
  const shim::Launcher launch;
  launch("sum", dim3(1), dim3(kThreads), sum_and_largest, x.data(), std::int64_t{1000}, sum.data(), largest.data());
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(sum[static_cast<std::size_t>(i)], -500.0f);
    EXPECT_EQ(largest[static_cast<std::size_t>(i)], 500.0f);
  }
}

TEST(Kernel, NanIsTheLargest) {
  for (const std::size_t at : {0u, 31u, 64u, 95u, 500u}) {
    std::vector<float> x(501, 1.0f), sum(kThreads), largest(kThreads);
    x[at] = std::numeric_limits<float>::quiet_NaN();
    const shim::Launcher launch;
    launch("nan", dim3(1), dim3(kThreads), sum_and_largest, x.data(), std::int64_t{501}, sum.data(), largest.data());
    EXPECT_TRUE(std::isnan(largest[0])) << at;
    EXPECT_TRUE(std::isnan(largest[95])) << at;
  }
}

TEST(Kernel, MagnitudesHaveNoSign) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> numbers{-0.0f, 1.5f, -1.5f, -inf, inf, -nan, nan, -std::numeric_limits<float>::denorm_min()};
  for (const std::int64_t n : {0, 1, 31, 255, 256, 257, 1000}) {
    std::vector<unsigned> values(static_cast<std::size_t>(n) + 1);
    const auto of = [&](std::size_t i) { return std::bit_cast<unsigned>(numbers[i % numbers.size()]); };
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = of(i);
    clear_signs(shim::Launcher(), reinterpret_cast<float*>(values.data()), n);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(values[i], static_cast<std::int64_t>(i) < n ? of(i) & 0x7FFFFFFFu : of(i)) << i << " of " << n;
  }
}

}  // namespace
}  // namespace fp8::device
