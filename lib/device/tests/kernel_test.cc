// Building blocks of kernels, and the shim that runs them on the host: reductions over blocks, missing threads.
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

void some_never_arrive(int* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

void half_a_warp_shuffles(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1, 1);
}

TEST(Shim, ReportsThreadsThatNeverArrive) {
  std::vector<int> out(64);
  const shim::Launcher launch;
  EXPECT_THROW(launch("barrier", dim3(1), dim3(64), some_never_arrive, out.data()), std::runtime_error);
  EXPECT_THROW(launch("shuffle", dim3(1), dim3(64), half_a_warp_shuffles, out.data()), std::runtime_error);
}

void shift(int* x, int n) {  // each block shifts its values to the right by one, through shared memory
  __shared__ int tile[64];
  const auto i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) tile[threadIdx.x] = x[i];
  __syncthreads();
  if (i < n) x[i] = threadIdx.x == 0 ? -1 : tile[threadIdx.x - 1];
}

TEST(Shim, BlocksShareMemoryBehindBarriers) {
  std::vector<int> x(150);
  std::iota(x.begin(), x.end(), 0);
  const shim::Launcher launch;
  launch("shift", dim3(3), dim3(64), shift, x.data(), 150);
  for (int i = 0; i < 150; ++i) EXPECT_EQ(x[static_cast<std::size_t>(i)], i % 64 == 0 ? -1 : i - 1);
  EXPECT_EQ(launch.launches, 1);
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
