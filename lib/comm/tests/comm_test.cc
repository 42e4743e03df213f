// A group of one rank without MPI, and launched() under the environments of launchers.
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm_cases.h"
#include "fp8/comm/device.h"

namespace fp8::comm {
namespace {

TEST(Solo, DoesAllThatACommunicatorDoes) {
  const std::unique_ptr<Communicator> group = solo();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  check_communicator(*group);
}

TEST(OnDevice, OfTheHostIsTheHostsOwn) {
  const std::unique_ptr<Communicator> group = solo();
  EXPECT_EQ(on_device(*group, {}).get(), group.get());
}

TEST(Solo, KnowsOnlyRootZero) {
  const std::unique_ptr<Communicator> group = solo();
  std::vector<std::byte> bytes(1);
  EXPECT_THROW(group->broadcast(bytes, 1), Error);
}

/// Sets variables for the length of a test and takes all of mpirun's and srun's away before.
class Launch : public testing::Test {
 protected:
  Launch() { clear(); }
  ~Launch() override { clear(); }
  static void clear() {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD", "PMI2_RANK", "SLURM_PROCID",
                             "SLURM_STEP_NUM_TASKS"}) {
      unsetenv(name);
    }
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(Launch, ByHand) {
  EXPECT_FALSE(launched());
  Session session;
  EXPECT_EQ(session.world().size(), 1);
}

TEST_F(Launch, ByMpirun) {
  set("PMIX_RANK", "0");
  set("OMPI_COMM_WORLD_SIZE", "2");
  EXPECT_TRUE(launched());
  set("OMPI_COMM_WORLD_SIZE", "1");
  EXPECT_FALSE(launched());
}

TEST_F(Launch, BySrun) {
  set("SLURM_PROCID", "0");
  EXPECT_FALSE(launched()) << "a batch script";
  set("PMI_FD", "7");
  set("SLURM_STEP_NUM_TASKS", "16");
  EXPECT_TRUE(launched());
  set("SLURM_STEP_NUM_TASKS", "1");
  EXPECT_FALSE(launched());
}

TEST(Library, SaysItsNameAndVersion) { EXPECT_TRUE(library_version().starts_with("Open MPI 4.")) << library_version(); }

TEST(Abort, EndsThisProcessWithItsStatus) { EXPECT_EXIT(abort_all(3), testing::ExitedWithCode(3), ""); }

}  // namespace
}  // namespace fp8::comm
