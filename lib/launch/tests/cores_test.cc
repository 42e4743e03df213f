// Division of cores and GPUs among jobs.
#include "cores.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "fp8_test.h"
#include "sweep_worker.h"

namespace fp8::launch {
namespace {

using Parts = std::vector<std::vector<int>>;
using test::error_of;

// Two sockets of two cores with two hardware threads each, numbered as Linux does: the second thread of each core last.
std::vector<HardwareThread> eight() {
  return {{0, 0, 0}, {1, 1, 0}, {2, 2, 1}, {3, 3, 1}, {4, 0, 0}, {5, 1, 0}, {6, 2, 1}, {7, 3, 1}};
}

TEST(Cores, JobsHaveWholeCores) {
  EXPECT_EQ(share_cores(eight(), 1), (Parts{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(share_cores(eight(), 2), (Parts{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(share_cores(eight(), 4), (Parts{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(Cores, PartsDifferByOneCoreAtMost) {
  std::vector<HardwareThread> threads;
  for (int cpu = 0; cpu < 11; ++cpu) threads.push_back({cpu, cpu, 0});
  for (std::size_t jobs = 1; jobs <= threads.size(); ++jobs) {
    const Parts parts = share_cores(threads, jobs);
    ASSERT_EQ(parts.size(), jobs);
    std::vector<int> all;
    std::size_t least = threads.size(), most = 0;
    for (const std::vector<int>& part : parts) {
      all.insert(all.end(), part.begin(), part.end());
      least = std::min(least, part.size());
      most = std::max(most, part.size());
    }
    EXPECT_LE(most - least, 1U) << jobs;
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), threads.size()) << jobs;
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int>(i));
  }
}

TEST(Cores, MoreJobsThanCoresDivideHardwareThreads) {
  const Parts parts = share_cores(eight(), 8);
  EXPECT_EQ(parts, (Parts{{0}, {4}, {1}, {5}, {2}, {6}, {3}, {7}}));
  EXPECT_EQ(error_of([] { share_cores(eight(), 9); }), "9 jobs need cores of their own, and there are 8");
}

TEST(Cores, OfThisMachine) {
  const std::vector<HardwareThread> threads = usable_threads();
  ASSERT_FALSE(threads.empty());
  for (const HardwareThread& t : threads) EXPECT_LE(t.core, t.cpu);
  const int last = threads.back().cpu;
  const pid_t child = ::fork();
  if (child == 0) {
    run_on(std::vector<int>{last});
    const std::vector<HardwareThread> left = usable_threads();
    ::_exit(left.size() == 1 && left.front().cpu == last && ::sched_getcpu() == last ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(usable_threads(), threads);
}

TEST(Cores, Lists) {
  EXPECT_EQ(cpu_list(std::vector<int>{}), "");
  EXPECT_EQ(cpu_list(std::vector<int>{3}), "3");
  EXPECT_EQ(cpu_list(std::vector<int>{0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
}

TEST(Gpus, AreShared) {
  EXPECT_EQ(share_gpus("0,1,2,3", 0, 2), "0,1");
  EXPECT_EQ(share_gpus("0,1,2,3", 1, 2), "2,3");
  EXPECT_EQ(share_gpus("GPU-a,GPU-b,GPU-c", 0, 2), "GPU-a,GPU-b");
  EXPECT_EQ(share_gpus("GPU-a,GPU-b,GPU-c", 1, 2), "GPU-c");
  EXPECT_EQ(share_gpus("0", 1, 2), "0");
  EXPECT_EQ(share_gpus("", 1, 2), "");
}

}  // namespace
}  // namespace fp8::launch
