// Series longer than their memory limit, and exact quantiles of them.
#include "fp8/log/series.h"

#include <cmath>
#include <cstdlib>
#include <random>

#include "fp8_test.h"
#include "statistics.h"

namespace fp8::log {
namespace {

// Compares a series with a vector under the appends and truncations of resumed runs.
TEST(Series, MatchesAVectorForEveryMemoryLimit) {
  for (const std::size_t memory : {std::size_t{0}, 3 * kBlock * 8, std::size_t{1} << 30U}) {
    std::mt19937_64 random(5);
    const auto store = std::make_shared<BlockStore>(memory);
    Series<double> a(store), constant(store);
    Series<std::int64_t> counts(store);
    std::vector<double> b;
    for (int round = 0; round < 60; ++round) {
      for (std::uint64_t n = random() % (2 * kBlock); n > 0; --n) {
        b.push_back(static_cast<double>(random()));
        a.push_back(b.back());
        counts.push_back(static_cast<std::int64_t>(4096 * b.size()));
      }
      const std::size_t keep = random() % 3 == 0 ? random() % (b.size() + 1) : b.size();
      b.resize(keep);
      a.cut(keep);
      counts.cut(keep);
      constant.cut(keep);
      constant.append(keep - constant.size(), 0.5);
      ASSERT_EQ(a.size(), b.size());
      for (int i = 0; i < 20 && !b.empty(); ++i) {
        const std::size_t at = random() % b.size();
        ASSERT_EQ(a[at], b[at]);
        ASSERT_EQ(counts[at], static_cast<std::int64_t>(4096 * (at + 1)));
        ASSERT_EQ(constant[at], 0.5);
        ASSERT_EQ(counts.lower_bound(static_cast<std::int64_t>(4096 * (at + 1))), at);
      }
    }
    EXPECT_EQ(a.values(), b);
    a.cut(0);
    EXPECT_TRUE(a.empty());
  }
}

TEST(Series, MissingTemporaryFolderIsReported) {
  const test::TemporaryFolder scratch;
  ASSERT_EQ(::setenv("TMPDIR", scratch.at("gone").c_str(), 1), 0);
  Series<double> values(std::make_shared<BlockStore>(0));
  EXPECT_EQ(test::error_of([&] {
              for (int i = 0; i < 5000; ++i) values.push_back(std::sqrt(i));
            }),
            scratch.at("gone") + ": cannot make a temporary file: No such file or directory");
  ASSERT_EQ(::unsetenv("TMPDIR"), 0);
  Series<double> even(std::make_shared<BlockStore>(0));
  even.append(100000, 1.5);
  EXPECT_EQ(even.back(), 1.5);
}

// Quantiles of many values are computed by counting and must be the same.
TEST(Quantile, IsExactForManyValues) {
  std::mt19937_64 random(6);
  for (const int kind : {0, 1, 2}) {
    std::vector<double> values;
    for (int i = 0; i < 400000; ++i) {
      const double v = static_cast<double>(random() % 1000003);
      values.push_back(kind == 0 ? v - 5e5 : kind == 1 ? 19000 + v / 1e6 : static_cast<double>(random() % 3));
    }
    values[7] = NAN;
    std::vector<double> sorted = values;
    sorted.erase(sorted.begin() + 7);
    std::sort(sorted.begin(), sorted.end());
    for (const double q : {0.0, 0.1, 0.5, 0.9, 0.999, 1.0}) {
      const double place = q * static_cast<double>(sorted.size() - 1);
      const auto below = static_cast<std::size_t>(place);
      const double high = sorted[std::min(below + 1, sorted.size() - 1)];
      EXPECT_EQ(quantile(values, q), std::lerp(sorted[below], high, place - static_cast<double>(below)))
          << kind << " " << q;
    }
  }
}

}  // namespace
}  // namespace fp8::log
