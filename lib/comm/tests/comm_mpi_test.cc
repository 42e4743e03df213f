// The cases of comm_cases.h over MPI, and cases that only MPI has: long messages in pieces and errors of the library.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "comm_cases.h"
#include "mpi_communicator.h"
#include "mpi_main.h"

namespace fp8::comm {
namespace {

TEST(World, DoesAllThatACommunicatorDoes) { check_communicator(*world()); }

TEST(World, PartsOfItDoSoToo) {
  Communicator& all = *world();
  check_communicator(*all.split(0, -all.rank(), "reversed"));
  check_communicator(*all.split(all.rank(), 0, "alone"));
}

TEST(World, LongMessagesTravelInPieces) {
  if (!launched()) GTEST_SKIP() << "needs MPI";
  for (const std::int64_t longest : {1, 64, 100}) {
    const std::unique_ptr<Communicator> group = mpi_world(longest);
    check_reductions(*group, {});
    check_amax(*group, {});
    for (const bool in_place : {false, true}) {
      check_all_gather(*group, {}, in_place);
      check_reduce_scatter(*group, {}, in_place, 10);
    }
    check_many_requests(*group, {});
    check_several_tensors(*group, {});
  }
}

TEST(World, UnderWatchItDoesAllOfItToo) {
  if (!launched()) GTEST_SKIP() << "needs MPI";
  const std::unique_ptr<Communicator> group = mpi_world();
  EXPECT_TRUE(group->watch(60, [](const watchdog::Stall& s) { ADD_FAILURE() << s.message(); }));
  for (int i = 0; i < 20; ++i) check_communicator(*group);
}

// Who waits finds out who is missing, from a thread of its own, while the missing one computes and comes too late.
TEST(World, AWatchdogNamesTheLateRankOnce) {
  if (!launched() || world()->size() < 2) GTEST_SKIP() << "needs two ranks";
  const std::unique_ptr<Communicator> group = mpi_world();
  std::atomic<bool> over = false;
  std::mutex mutex;
  std::string heard;
  EXPECT_TRUE(group->watch(1, [&](const watchdog::Stall& s) {
    const std::lock_guard lock(mutex);
    if (!over) heard += s.message() + "\n";
    over = true;
  }));
  group->progress().set_step(3);
  group->barrier();
  const auto start = std::chrono::steady_clock::now();
  const auto after = [&](double seconds) {
    return std::chrono::steady_clock::now() - start > std::chrono::duration<double>(seconds);
  };
  if (group->rank() == 1) {
    while (!after(1.5)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  group->barrier();
  over = true;
  const std::vector<std::string> all = world()->all_gather([&] {
    const std::lock_guard lock(mutex);
    return heard;
  }());
  EXPECT_EQ(all[0], "rank 1 did not reach barrier 3 (step 3) within 1 s\n");
  for (std::size_t r = 1; r < all.size(); ++r) EXPECT_EQ(all[r], "");
}

TEST(World, AWatchdogWaitsForWorkOfARankAlone) {
  if (!launched() || world()->size() < 2) GTEST_SKIP() << "needs two ranks";
  const std::unique_ptr<Communicator> group = mpi_world();
  EXPECT_TRUE(group->watch(1, [](const watchdog::Stall& s) { ADD_FAILURE() << s.message(); }));
  agree(*group, [&] {
    if (group->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1800));
  });
}

TEST(World, ErrorsOfTheLibraryNameTheCollective) {
  if (!launched()) GTEST_SKIP() << "needs MPI";
  std::vector<std::byte> bytes(4);
  EXPECT_EQ(test::error_of([&] { world()->broadcast(bytes, 1000); }), "MPI broadcast: MPI_ERR_ROOT: invalid root");
}

}  // namespace
}  // namespace fp8::comm

int main(int argc, char** argv) { return fp8::comm::run_tests(argc, argv); }
