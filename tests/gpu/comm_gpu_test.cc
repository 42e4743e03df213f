// NCCL's communicator on this process's GPU, alone: the cases of every communicator, and its watchdog.
#include <gtest/gtest.h>

#include "../../lib/comm/tests/comm_cases.h"
#include "fp8/comm/device.h"
#include "fp8/device/arena.h"

namespace fp8::comm {
namespace {

TEST(NcclGpu, DoesAllThatACommunicatorDoes) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << device::why_no_cuda();
  const device::Device gpu(device::Place::cuda);
  device::Arena arena(1 << 20, device::Place::cuda);
  const std::unique_ptr<Communicator> host = solo();
  const std::shared_ptr<Communicator> group = on_device(*host, gpu.context(arena));
  check_communicator(*group, gpu.context(arena));
  bool lost = false;
  EXPECT_TRUE(group->watch(30, [&](const Stall&) { lost = true; }));
  check_communicator(*group, gpu.context(arena));
  EXPECT_FALSE(lost);
  EXPECT_EQ(device_library_version().substr(0, 5), "NCCL ");
}

}  // namespace
}  // namespace fp8::comm
