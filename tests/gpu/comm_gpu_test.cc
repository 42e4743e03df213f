// The communicators on a device: the common cases of all communicators, on one rank without NCCL, on one with NCCL and
// its stall detector, and on several under mpirun.
#include <gtest/gtest.h>

#include "../../lib/comm/tests/comm_cases.h"
#include "fp8/comm/device.h"
#include "fp8/device/arena.h"

namespace fp8::comm {
namespace {

TEST(SoloGpu, PassesTheCommunicatorCases) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << device::why_no_cuda();
  const device::Device gpu(device::DeviceType::cuda);
  device::Arena arena(1 << 20, device::DeviceType::cuda);
  const std::unique_ptr<Communicator> host = solo();
  check_communicator(*on_device(*host, gpu.context(arena)), gpu.context(arena));
}

TEST(NcclGpu, PassesTheCommunicatorCases) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << device::why_no_cuda();
  const device::Device gpu(device::DeviceType::cuda);
  device::Arena arena(1 << 20, device::DeviceType::cuda);
  const std::unique_ptr<Communicator> host = solo();
  const std::shared_ptr<Communicator> group = on_device(*host, gpu.context(arena), true);
  check_communicator(*group, gpu.context(arena));
  bool lost = false;
  EXPECT_TRUE(group->watch(30, [&](const watchdog::Stall&) { lost = true; }));
  check_communicator(*group, gpu.context(arena));
  EXPECT_FALSE(lost);
  EXPECT_EQ(device_library_version().substr(0, 5), "NCCL ");
}

// Needs mpirun and a GPU per rank.
TEST(NcclGpu, SeveralRanksPassTheCommunicatorCases) {
  if (!launched()) GTEST_SKIP() << "one rank: mpirun starts several";
  if (device::cuda_device_count() <= local_rank()) GTEST_SKIP() << "fewer GPUs than ranks";
  Session session;
  const device::Device gpu(device::DeviceType::cuda, local_rank());
  device::Arena arena(1 << 20, device::DeviceType::cuda);
  EXPECT_TRUE(session.world().watch(60, [](const watchdog::Stall& stall) {
    ADD_FAILURE() << stall.message();
    abort_all(1);
  }));
  const std::shared_ptr<Communicator> group = on_device(session.world(), gpu.context(arena));
  check_communicator(*group, gpu.context(arena));
}

}  // namespace
}  // namespace fp8::comm
