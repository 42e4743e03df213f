// Threads of ranks from the processors that they may use, and ranks that MPI lacks.
#include "fp8/train/mpi_session.h"

#include <gtest/gtest.h>

namespace fp8::train {
namespace {

// The shares of all ranks.
std::vector<int> shares(const std::vector<std::string>& processors, int count) {
  std::vector<int> all;
  for (std::size_t rank = 0; rank < processors.size(); ++rank)
    all.push_back(share_of_processors(processors, rank, count));
  return all;
}

TEST(ShareOfProcessors, IsEqualAmongRanksOnTheSameOnes) {
  EXPECT_EQ(shares({"a 0-7", "a 0-7"}, 8), (std::vector{4, 4}));
  EXPECT_EQ(shares({"a 0-3", "a 0-3", "a 4-7", "a 4-7"}, 4), (std::vector{2, 2, 2, 2}));  // two bound jobs as one
  EXPECT_EQ(shares({"a 0-3", "a 4-7"}, 4), (std::vector{4, 4}));                          // each is bound
  EXPECT_EQ(shares({"a 0-7", "b 0-7"}, 8), (std::vector{8, 8}));                          // two machines
  EXPECT_EQ(shares({"a 0", "a 0", "a 0"}, 1), (std::vector{1, 1, 1}));
  EXPECT_EQ(shares({"", "", ""}, 7), (std::vector{2, 2, 2}));
}

TEST(WrongRanks, AreThoseThatTheLauncherOrTheUserCountsAndMpiLacks) {
  EXPECT_EQ(wrong_ranks({}, 1, {}), "");
  EXPECT_EQ(wrong_ranks({"srun", 1}, 1, {}), "");
  EXPECT_EQ(wrong_ranks({"mpirun", 4}, 4, {}), "");
  EXPECT_EQ(wrong_ranks({"srun", 4}, 1, {})
                .find("srun started 4 tasks, but MPI has 1 rank: for one job type srun --mpi=pmix "),
            0u);
  EXPECT_EQ(wrong_ranks({"srun", 4}, 1, 1), "") << "each task is a run";
  EXPECT_EQ(wrong_ranks({"srun", 4}, 1, 4).find("srun started 4 tasks, but MPI has 1 rank: "), 0u);
  EXPECT_EQ(wrong_ranks({"mpiexec", 8}, 4, {}).find("mpiexec started 8 tasks, but MPI has 4 ranks: "), 0u);
  EXPECT_EQ(wrong_ranks({"mpirun", 4}, 4, 8), "--ranks: 8, but MPI has 4 ranks");
  EXPECT_EQ(wrong_ranks({}, 1, 2), "--ranks: 2, but MPI has 1 rank");
}

}  // namespace
}  // namespace fp8::train
