// Balanced routes of a plan: every expert has the same rows of every rank, or this rank's a multiple of them.
#include "dispatch.h"

#include <gtest/gtest.h>

#include <numeric>

namespace fp8::model {
namespace {

// The second of three ranks, which share nine experts.
class Three final : public ExpertExchange {
 public:
  int ranks() const override { return 3; }
  int rank() const override { return 1; }
  std::int64_t first_expert(int rank) const override { return 3 * rank; }
  double room() const override { return 2; }
  void gather_counts(const Context&, const View&, const View&) override {}
  void exchange(const Context&, const View&, std::span<const std::int64_t>, const View&,
                std::span<const std::int64_t>) override {}
};

TEST(BalancedCounts, AreEqualButForOneRow) {
  const std::vector<std::int32_t> counts = balanced_counts(nullptr, 4, 10, 2);
  EXPECT_EQ(counts, (std::vector<std::int32_t>{3, 3, 2, 2})) << "one rank has all experts";
  const Three three;
  const std::vector<std::int32_t> all = balanced_counts(&three, 9, 19, 1);
  std::vector<std::int64_t> of_expert(9, 0);
  for (std::size_t i = 0; i < all.size(); ++i) of_expert[i % 9] += all[i];
  EXPECT_EQ(of_expert, (std::vector<std::int64_t>{7, 7, 7, 6, 6, 6, 6, 6, 6}));
}

TEST(BalancedCounts, OfThisRankAreAMultiple) {
  const Three three;
  for (const double imbalance : {1.5, 100.0}) {
    const std::vector<std::int32_t> all = balanced_counts(&three, 9, 18, imbalance);
    for (int rank = 0; rank < 3; ++rank) {
      const std::span of_rank = std::span(all).subspan(static_cast<std::size_t>(rank) * 9, 9);
      EXPECT_EQ(std::accumulate(of_rank.begin(), of_rank.end(), 0), 18);
      EXPECT_EQ(of_rank[3] + of_rank[4] + of_rank[5], imbalance == 1.5 ? 9 : 18);
    }
  }
}

}  // namespace
}  // namespace fp8::model
