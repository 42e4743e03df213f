// The 95 % interval of fp8-log --compare. The runs in tests/golden/noise have one setting and differ only in seed and
// number of ranks, so the true gap is 0, and the interval must contain 0 for about 95 % of all ways to pair the runs.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "fp8/log/compare.h"
#include "run_text.h"

namespace fp8::log {
namespace {

constexpr std::size_t kSeeds = 8, kVariants = 3, kRuns = kSeeds * kVariants;

// Counts the intervals of three gaps that contain 0.
struct Coverage {
  std::size_t inside = 0, all = 0;
  double factor = *mean_interval(std::array{-1.0, 0.0, 1.0});  // interval over standard deviation

  void add(const std::array<double, 3>& gaps) {
    const double mean = (gaps[0] + gaps[1] + gaps[2]) / 3;
    double squares = 0;
    for (const double gap : gaps) squares += (gap - mean) * (gap - mean);
    inside += std::abs(mean) <= factor * std::sqrt(squares / 2) ? 1 : 0;
    ++all;
  }
  double share() const { return static_cast<double>(inside) / static_cast<double>(all); }
};

// gaps_of_runs()[i * kRuns + j] is the gap of run j less run i, as fp8-log computes it.
std::vector<double> gaps_of_runs() {
  std::vector<Log> runs;
  for (std::size_t seed = 1; seed <= kSeeds; ++seed) {
    for (const char* ranks : {"1", "2", "4"}) {
      const std::string name = "seed-" + std::to_string(seed) + "-ranks-" + ranks + ".jsonl";
      runs.push_back(read_run("tests/golden/noise/" + name, {.all = false, .metrics = summary_metrics()}));
    }
  }
  std::vector<double> all;
  for (const Log& a : runs) {
    for (const Log& b : runs) all.push_back(*compare(a, b).gap);
  }
  return all;
}

// Three pairs of different seeds, each of two runs that differ only in their number of ranks: as --compare compares
// them.
TEST(Noise, CoverageOfPairsOfOneSeed) {
  const std::vector<double> gap = gaps_of_runs();
  const auto of = [&](std::size_t seed, std::size_t way) {
    constexpr std::array<std::array<std::size_t, 2>, 6> kWays = {{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}}};
    return gap[(seed * kVariants + kWays.at(way)[0]) * kRuns + seed * kVariants + kWays.at(way)[1]];
  };
  Coverage c;
  for (std::size_t i = 0; i < kSeeds; ++i) {
    for (std::size_t j = i + 1; j < kSeeds; ++j) {
      for (std::size_t k = j + 1; k < kSeeds; ++k) {
        for (std::size_t w = 0; w < 216; ++w) c.add({of(i, w % 6), of(j, w / 6 % 6), of(k, w / 36)});
      }
    }
  }
  EXPECT_EQ(c.all, 56U * 216U);
  EXPECT_GE(c.share(), 0.90);
  EXPECT_LE(c.share(), 0.99);
}

// Three pairs of any six runs. The interval of -gap is that of gap mirrored, so one order of the first pair suffices.
TEST(Noise, CoverageOfAllPairs) {
  const std::vector<double> gap = gaps_of_runs();
  struct Pair {
    std::size_t i, j;
    bool apart(const Pair& o) const { return i != o.i && i != o.j && j != o.i && j != o.j; }
  };
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < kRuns; ++i) {
    for (std::size_t j = i + 1; j < kRuns; ++j) pairs.push_back({i, j});
  }
  const auto of = [&](const Pair& p) { return gap[p.i * kRuns + p.j]; };
  Coverage c;
  for (std::size_t x = 0; x < pairs.size(); ++x) {
    for (std::size_t y = x + 1; y < pairs.size(); ++y) {
      if (!pairs[x].apart(pairs[y])) continue;
      for (std::size_t z = y + 1; z < pairs.size(); ++z) {
        if (!pairs[z].apart(pairs[x]) || !pairs[z].apart(pairs[y])) continue;
        for (const double s : {1, -1}) {
          for (const double t : {1, -1}) c.add({of(pairs[x]), s * of(pairs[y]), t * of(pairs[z])});
        }
      }
    }
  }
  EXPECT_EQ(c.all, std::size_t{276} * 231 * 190 / 6 * 4);
  EXPECT_GE(c.share(), 0.90);
  EXPECT_LE(c.share(), 0.99);
}

}  // namespace
}  // namespace fp8::log
