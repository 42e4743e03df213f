// How many checkpoints a run adds to its folder, and what is said about their space.
#include "fp8/state/space.h"

#include "fp8_test.h"

namespace fp8::state {
namespace {

TEST(Space, CountsTheCheckpointsThatExistAtTheSameTime) {
  EXPECT_EQ(most_added({.every = 2}, 0, 0, 10), 5);
  EXPECT_EQ(most_added({.every = 3}, 4, 0, 10), 4) << "three, and the last";
  EXPECT_EQ(most_added({.every = 2}, 0, 5, 6), 1);
  EXPECT_EQ(most_added({}, 0, 0, 10), 1) << "the last alone";
  EXPECT_EQ(most_added({.every = 2, .milestones = 3}, 0, 0, 12), 8) << "2, 3, 4, 6, 8, 9, 10, 12";
  EXPECT_EQ(most_added({.every = 2, .keep = 1}, 0, 0, 10), 2) << "the older one goes after the newer one is there";
  EXPECT_EQ(most_added({.every = 2, .keep = 1}, 1, 0, 10), 1);
  EXPECT_EQ(most_added({.every = 2, .keep = 3}, 9, 0, 10), 1) << "older ones go first";
  EXPECT_EQ(most_added({.every = 2, .keep = 9}, 0, 0, 4), 2);
  EXPECT_EQ(most_added({.every = 2, .keep = 1, .milestones = 4, .keep_best = true}, 0, 0, 10), 5);
  EXPECT_EQ(most_added({.every = 1, .rolling = true}, 0, 0, 10), 3);
}

TEST(Space, RefusesARunWithoutRoomForOneCheckpointAndWarnsOfLess) {
  SpaceForCheckpoints space{"run", 2048, 2047, 3};
  EXPECT_HOLDS(space.refusal(), "run: a checkpoint needs 2 KiB, and ");
  EXPECT_EQ(space.warning(), "");
  space.free = 2048;
  EXPECT_EQ(space.refusal(), "");
  EXPECT_HOLDS(space.warning(), "run: up to 3 new checkpoints of 2 KiB, and 2 KiB are free: ");
  space.free = 3 * 2048;
  EXPECT_EQ(space.warning(), "");
  EXPECT_EQ(space.text(), "a checkpoint takes 2 KiB; run has 6 KiB free");
  space = space_for({.run_folder = "/proc/run"}, 2048, 0, 1);
  EXPECT_EQ(space.refusal() + space.warning(), "") << "a file system that states no size";
  EXPECT_EQ(space.text(), "a checkpoint takes 2 KiB; /proc/run has an unknown amount free");
}

TEST(Space, OfAFolderThatDoesNotExistIsThatOfTheFolderAbove) {
  const test::TemporaryFolder folder;
  const SpaceForCheckpoints space = space_for({.run_folder = folder.at("a/b/c"), .every = 2}, 1, 0, 4);
  EXPECT_EQ(space.count, 2);
  EXPECT_GT(space.free, 0U);
}

}  // namespace
}  // namespace fp8::state
