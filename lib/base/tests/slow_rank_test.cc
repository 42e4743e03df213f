// The rank for which others wait.
#include "fp8/base/slow_rank.h"

#include <gtest/gtest.h>

#include <vector>

namespace fp8 {
namespace {

TEST(SlowRank, IsComparedWithTheMedianOfItsStage) {
  struct Case {
    std::vector<std::int64_t> busy;
    int stages;
    std::string text;
  };
  const std::vector<Case> cases{
      {{100, 100, 112, 90}, 1, "rank 2 waits least: 12 % slower than the median"},
      {{100, 125}, 1, "rank 1 waits least: 25 % slower than the median"},
      {{150, 100, 100}, 1, "rank 0 waits least: 50 % slower than the median"},
      {{100, 101, 100, 300, 390, 300}, 2, "rank 4 waits least: 30 % slower than the median"},
      {{120, 100, 300, 330}, 2, "rank 0 waits least: 20 % slower than the median"},
      {{100, 100}, 1, "rank 0 waits least: 0 % slower than the median"},
      {{0, 0, 100, 200}, 2, "rank 3 waits least: 100 % slower than the median"},
      {{0, 0, 7}, 1, "none"},
      {{100, 300}, 2, "none"},
      {{100}, 1, "none"},
  };
  for (const Case& c : cases) {
    const std::optional<SlowRank> slow = find_slow_rank(c.busy, c.stages);
    EXPECT_EQ(slow ? text_of(*slow) : "none", c.text);
  }
  EXPECT_EQ(text_of({5, "node-3", 0.118}), "rank 5 on node-3 waits least: 12 % slower than the median");
}

}  // namespace
}  // namespace fp8
