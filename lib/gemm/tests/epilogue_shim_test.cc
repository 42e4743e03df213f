// The epilogue of a device, thread by thread on the host, compared with that of the host: the same bits.
#include "cuda_shim.h"
//
#include <gtest/gtest.h>

#include <limits>

#include "epilogue.cuh"
#include "far_rows.h"
#include "matrices.h"

namespace fp8::gemm::testing {
namespace {

TEST(EpilogueCuda, HasTheBitsOfTheHost) {
  const shim::Launcher launch;
  for (const auto& [m, n] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 255}, {2, 257}, {5, 16}, {1, 600}, {0, 4}}) {
    for (int bits = 0; bits < 32; ++bits) {
      for (const DType type : {DType::f32, DType::bf16}) {
        const Tensor rows = odd_scales(m + 1, 3), columns = odd_scales(n, 5), one = odd_scales(1, 7);
        const Matrix bias = integers((bits & 4) != 0 ? DType::f32 : DType::bf16, 1, n, Layout::rows, 4);
        const Matrix c = integers(type, m, n, Layout::wide, 3), want = integers(type, m, n, Layout::wide, 3);
        Epilogue e;
        e.scale_a = (bits & 1) != 0 ? rows.as<float>() : nullptr;
        e.scale_a_rows = (bits & 1) != 0;
        e.scale_b = (bits & 2) != 0 ? columns.as<float>() : one.as<float>();
        e.scale_b_columns = (bits & 2) != 0;
        if ((bits & 8) != 0) e.bias = bias.view.reshaped({n});
        e.accumulate = (bits & 16) != 0 && type == DType::f32;
        Tensor sums(DType::f32, {m, n});
        for (std::int64_t i = 0; i < m * n; ++i) sums.as<float>()[i] = 1.0f / (static_cast<float>(i) - 7.5f);
        if (m > 0 && n > 4) sums.as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
        finish_cuda(launch, sums.as<float>(), e, c.view);
        finish(sums.as<float>(), want.view.shape[1], e, want.view);
        const std::size_t bytes = c.memory.view().bytes();
        EXPECT_TRUE(bytes == 0 || std::memcmp(c.memory.view().data, want.memory.view().data, bytes) == 0)
            << m << ' ' << n << ' ' << bits;
      }
    }
  }
}

// The last row of a matrix of more than 2^32 elements, whose grid is longer than CUDA allows along y.
TEST(EpilogueCuda, RowsBeyond32Bits) {
  constexpr std::int64_t kRows = std::int64_t{1} << 20, kColumns = 4112;
  const shim::Launcher launch;
  const Matrix sums = integers(DType::f32, 1, kColumns, Layout::rows, 1);
  const test::FarRows far(DType::f32, kRows, kColumns);
  far.put(sums.view);
  for (const DType type : {DType::f32, DType::bf16}) {
    const test::FarRows c(type, kRows, kColumns);
    const shim::Launches last(shim::Blocks::last);
    finish_cuda(launch, far.view.as<float>(), {}, c.view);
    const Tensor got(type, {1, kColumns});
    c.get(got.view());
    for (std::int64_t i = 0; i < kColumns; ++i) ASSERT_EQ(get(got.view(), 0, i), get(sums.view, 0, i)) << i;
    EXPECT_EQ(last.grids().at(0).x, kRows);
  }
}

TEST(EpilogueCuda, NullSumsAreZeros) {
  const shim::Launcher launch;
  const Tensor c(DType::f32, {2, 3});
  std::fill_n(c.as<float>(), 6, 5.0f);
  const Matrix bias = integers(DType::f32, 1, 3, Layout::rows, 4);
  Epilogue e;
  e.bias = bias.view.reshaped({3});
  finish_cuda(launch, nullptr, e, c.view());
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(c.as<float>()[i], bias.memory.as<float>()[i % 3]);
}

TEST(BroadcastCuda, RepeatsOneScale) {
  const shim::Launcher launch;
  const float value = 0.3f;
  for (const std::int64_t n : {0, 1, 255, 256, 257, 10000}) {
    std::vector<float> out(static_cast<std::size_t>(n) + 1, -1.0f);
    broadcast_cuda(launch, &value, n, out.data());
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(out[static_cast<std::size_t>(i)], value);
    EXPECT_EQ(out.back(), -1.0f);
    broadcast_cuda(launch, nullptr, n, out.data());
    for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(out[static_cast<std::size_t>(i)], 1.0f);
  }
}

}  // namespace
}  // namespace fp8::gemm::testing
