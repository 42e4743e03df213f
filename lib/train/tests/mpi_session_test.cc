// Ranks that share processors, and ranks that MPI lacks.
#include "fp8/train/mpi_session.h"

#include <gtest/gtest.h>

namespace fp8::train {
namespace {

// ranks_on_processors() of all ranks.
std::vector<int> sharing(const std::vector<std::string>& processors) {
  std::vector<int> all;
  for (std::size_t rank = 0; rank < processors.size(); ++rank) all.push_back(ranks_on_processors(processors, rank));
  return all;
}

TEST(RanksOnProcessors, AreThoseThatMayUseTheSameOnes) {
  EXPECT_EQ(sharing({"a 0-7", "a 0-7"}), (std::vector{2, 2}));
  EXPECT_EQ(sharing({"a 0-3", "a 0-3", "a 4-7"}), (std::vector{2, 2, 1}));  // two bound jobs as one
  EXPECT_EQ(sharing({"a 0-7", "b 0-7"}), (std::vector{1, 1}));              // two machines
  EXPECT_EQ(sharing({"", "", ""}), (std::vector{3, 3, 3}));
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
