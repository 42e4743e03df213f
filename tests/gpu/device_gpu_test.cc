// Allocation, copies and their order on a GPU.
#include <numeric>

#include "fp8/ops/norm.h"
#include "gpu.h"

namespace fp8::device {
namespace {

// A copy into new memory must not be overwritten by the zeroing of the allocation.
TEST(DeviceGpu, ZeroesNewMemoryBeforeCopies) {
  FP8_NEED_GPU();
  const Device gpu(DeviceType::cuda);
  const Context ctx = gpu.context();
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const std::vector<std::uint64_t> ones(1024, ~std::uint64_t{0});
  for (int round = 0; round < 3; ++round) {
    const Buffer buffer(kBytes, DeviceType::cuda, "a test");
    std::byte* const last = buffer.data() + kBytes - 8192;
    copy_bytes(ctx, last, DeviceType::cuda, ones.data(), DeviceType::host, 8192);
    std::vector<std::uint64_t> back(2048);
    copy_bytes(ctx, back.data(), DeviceType::host, last - 8192, DeviceType::cuda, 16384);
    for (std::size_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], i < 1024 ? 0 : ~std::uint64_t{0}) << i;
  }
}

// Copies are staged through pinned memory in pieces and must be ordered with kernels.
TEST(DeviceGpu, CopiesEverySizeInOrderWithKernels) {
  FP8_NEED_GPU();
  test::Gpu gpu;
  const Context& ctx = gpu.context();
  for (const std::int64_t n : {1, 1000, 1048576, 1048577, 30000001}) {
    std::vector<float> from(static_cast<std::size_t>(n));
    std::iota(from.begin(), from.end(), 1.0f);
    const tensor::Tensor there(dtype::DType::f32, {n}, DeviceType::cuda),
        copy(dtype::DType::f32, {n}, DeviceType::cuda);
    copy_bytes(ctx, there.view().data, DeviceType::cuda, from.data(), DeviceType::host, there.view().bytes());
    const std::vector<float> want = std::exchange(from, std::vector<float>(from.size(), -1.0f));
    copy_bytes(ctx, copy.view().data, DeviceType::cuda, there.view().data, DeviceType::cuda, there.view().bytes());
    ops::zero(ctx, there.view());
    EXPECT_EQ(tensor::to_host<float>(ctx, copy.view()), want);
    EXPECT_EQ(tensor::to_host<float>(ctx, there.view()), std::vector<float>(want.size()));
  }
}

TEST(DeviceGpu, ThrowsWhenOutOfMemoryAndAllocatesAfterwards) {
  FP8_NEED_GPU();
  const Device gpu(DeviceType::cuda);
  std::string message;
  try {
    const Buffer buffer(std::size_t{1} << 50, DeviceType::cuda, "moments");
  } catch (const std::exception& e) {
    message = e.what();
  }
  EXPECT_EQ(message.rfind("out of memory: moments needs 1 PiB on the GPU, where ", 0), 0U) << message;
  const Buffer small(1 << 20, DeviceType::cuda, "small");
  synchronize(gpu.context());
}

}  // namespace
}  // namespace fp8::device
