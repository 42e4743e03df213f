// A group of one rank without MPI, and launched() under the environments of launchers.
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm_cases.h"
#include "fp8/comm/mesh.h"

namespace fp8::comm {
namespace {

TEST(Solo, DoesAllThatACommunicatorDoes) {
  const std::unique_ptr<Communicator> group = solo();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  check_communicator(*group);
}

// rank = ((stage x dp_replicate + replicate) x dp_shard + shard) x tp + t.
TEST(Mesh, GroupsDifferAlongTheirDimensionsOnly) {
  const MeshShape shape{2, 3, 2, 1, 2};
  EXPECT_EQ(shape.ranks(), 24);
  for (int stage = 0; stage < 2; ++stage)
    for (int replicate = 0; replicate < 2; ++replicate)
      for (int part = 0; part < 3; ++part)
        for (int t = 0; t < 2; ++t) {
          const auto rank = [](int s, int r, int p, int u) { return ((s * 2 + r) * 3 + p) * 2 + u; };
          const int mine = rank(stage, replicate, part, t);
          EXPECT_EQ(first_of_group(shape, mine, 0), mine);
          EXPECT_EQ(first_of_group(shape, mine, kTp), rank(stage, replicate, part, 0));
          EXPECT_EQ(first_of_group(shape, mine, kDpShard), rank(stage, replicate, 0, t));
          EXPECT_EQ(first_of_group(shape, mine, kDpReplicate), rank(stage, 0, part, t));
          EXPECT_EQ(first_of_group(shape, mine, kDpReplicate + kDpShard), rank(stage, 0, 0, t));
          EXPECT_EQ(first_of_group(shape, mine, kPp + kTp), rank(0, replicate, part, 0));
        }
}

// An imagined mesh has the groups of first_of_group(), with members in increasing order.
TEST(Mesh, OfRanksThatDoNotExistHasTheirGroups) {
  const MeshShape shape{2, 3, 2, 2, 2};
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const Mesh mesh = Mesh::imagined(shape, rank, 4);
    const auto check = [&](const Communicator& group, unsigned dimensions) {
      int before = 0, size = 0;
      for (int r = 0; r < shape.ranks(); ++r)
        if (first_of_group(shape, r, dimensions) == first_of_group(shape, rank, dimensions)) ++size, before += r < rank;
      EXPECT_EQ(group.rank(), before) << rank << " " << dimensions;
      EXPECT_EQ(group.size(), size) << rank << " " << dimensions;
    };
    check(mesh.all(), kPp | kDpReplicate | kDpShard | kTp);
    check(mesh.shards(), kDpShard);
    check(mesh.replicas(), kDpReplicate);
    check(mesh.tensor(), kTp);
    check(mesh.copy(), kDpShard | kTp);
    check(mesh.stages(), kPp);
    check(mesh.model(), kPp | kDpShard | kTp);
    check(mesh.of_stage(), kDpReplicate | kDpShard | kTp);
    check(mesh.experts(), kEp);
    check(mesh.expert_shards(), kExpertShard);
    EXPECT_EQ(mesh.tensor().machines(), 1);
    EXPECT_EQ(mesh.all().machines(), 6);
    EXPECT_EQ(mesh.stages().machines(), 2);
  }
}

// Each group of several ranks once, and those that shard parameters twice.
TEST(Mesh, NumberOfCommunicatorsOnADevice) {
  const auto number = [](const MeshShape& shape) { return Mesh::imagined(shape, 1, 8).device_communicators(); };
  EXPECT_EQ(Mesh::imagined({1, 1, 1, 1, 1}, 0, 8).device_communicators(), 0);
  EXPECT_EQ(number({1, 8, 1, 1, 1}), 2);
  EXPECT_EQ(number({8, 1, 1, 1, 1}), 1);
  EXPECT_EQ(number({2, 4, 1, 1, 1}), 4);  // all, replicas, shards twice
  EXPECT_EQ(number({2, 2, 1, 1, 2}), 7);  // all, replicas, tp, shards and the shards of experts twice
  EXPECT_EQ(number({2, 2, 1, 1, 2, false}), 6) << "no gradients of experts are summed";
}

TEST(Mesh, OfRanksThatDoNotExistMovesNothing) {
  const Mesh mesh = Mesh::imagined({1, 4, 1, 1, 1}, 1, 8);
  std::int64_t value = 7;
  mesh.all().all_reduce(std::span<std::int64_t>(&value, 1), Reduce::max);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(mesh.all().all_gather("x"), (std::vector<std::string>{"x", "x", "x", "x"}));
  float term = 1;
  EXPECT_THROW(mesh.all().all_reduce(std::span<float>(&term, 1), Reduce::sum), Error);
}

TEST(Mesh, NeedsAsManyRanksAsItHas) {
  const std::unique_ptr<Communicator> group = solo();
  EXPECT_THROW(Mesh(*group, {2, 1}), Error);
  const Mesh one(*group);
  EXPECT_EQ(&one.shards(), group.get());
  EXPECT_EQ(&one.replicas(), group.get());
  EXPECT_EQ(one.data_parts(), 1);
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
                             "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "PMI_SIZE"}) {
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

TEST_F(Launch, CountsTheTasksOfTheInnermostLauncher) {
  const auto counted = [] { return launcher().name + " " + std::to_string(launcher().tasks); };
  EXPECT_EQ(counted(), " 1");
  set("SLURM_NTASKS", "8");
  set("SLURM_PROCID", "0");
  EXPECT_EQ(counted(), " 1") << "a batch script, or the shell of salloc";
  set("PMI_SIZE", "3");
  EXPECT_EQ(counted(), "mpiexec 3");
  set("SLURM_STEP_NUM_TASKS", "1");
  EXPECT_EQ(counted(), "srun 1") << "an interactive step of one task";
  set("SLURM_STEP_NUM_TASKS", "4");
  EXPECT_EQ(counted(), "srun 4");
  EXPECT_FALSE(launched()) << "srun without PMI";
  set("OMPI_COMM_WORLD_SIZE", "16");
  EXPECT_EQ(counted(), "mpirun 16") << "mpirun in an allocation, whose daemons srun started";
  set("OMPI_COMM_WORLD_SIZE", "many");
  EXPECT_EQ(counted(), "srun 4");
}

TEST(Library, SaysItsNameAndVersion) { EXPECT_TRUE(library_version().starts_with("Open MPI 4.")) << library_version(); }

TEST(Abort, EndsThisProcessWithItsStatus) { EXPECT_EXIT(abort_all(3), testing::ExitedWithCode(3), ""); }

}  // namespace
}  // namespace fp8::comm
