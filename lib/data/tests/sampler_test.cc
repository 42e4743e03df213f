// Samplers: the sequential order against fixed values, the permutation exhaustively, independence of the split of a
// step.
#include "fp8/data/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>
#include <vector>

#include "fp8_test.h"

namespace fp8::data {
namespace {

using test::error_of;
using test::TemporaryFolder;

// Tokens 0, 1, 2, ...; with a mask, every third is excluded.
class Counting {
 public:
  explicit Counting(std::int64_t n, bool mask = false) {
    TokenWriter writer(folder_.at("n.h5"), 1000, std::nullopt, mask, false);
    std::vector<std::uint32_t> tokens(static_cast<std::size_t>(n));
    std::iota(tokens.begin(), tokens.end(), 0U);
    std::vector<std::uint8_t> counts(mask ? tokens.size() : 0);
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = i % 3 == 0 ? 0 : 1;
    writer.append(tokens, counts);
    writer.finish();
    file_.emplace(folder_.at("n.h5"));
  }
  const TokenFile& file() const { return *file_; }

 private:
  TemporaryFolder folder_;
  std::optional<TokenFile> file_;
};

using Numbers = std::vector<std::int32_t>;

TEST(Sampler, sequential_reads_on_and_wraps_to_zero) {
  const Counting data(12);  // T = 4: samples 0 and 1 end at tokens 4 and 8; sample 2 would need token 12
  const Sampler sampler(data.file(), SamplerKind::sequential, 9, 4, 3);
  EXPECT_EQ(sampler.samples(), 2);
  EXPECT_EQ(sampler.tokens_per_step(), 12);
  Numbers inputs(12);
  Numbers targets(12);
  sampler.batch(0, 0, 3, inputs, targets);
  EXPECT_EQ(inputs, (Numbers{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3}));
  EXPECT_EQ(targets, (Numbers{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4}));
  sampler.batch(1, 0, 3, inputs, targets);
  EXPECT_EQ(inputs, (Numbers{4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Sampler, the_last_sample_needs_its_target) {
  EXPECT_EQ(Sampler(Counting(13).file(), SamplerKind::sequential, 0, 4, 1).samples(), 3);
  EXPECT_EQ(Sampler(Counting(5).file(), SamplerKind::sequential, 0, 4, 1).samples(), 1);
  const Counting data(4);
  EXPECT_EQ(error_of([&] { Sampler(data.file(), SamplerKind::sequential, 0, 4, 1); }),
            data.file().path() + ": 4 tokens are too few for sequences of 4 tokens, which need at least 5");
}

TEST(Sampler, a_mask_excludes_targets) {
  const Counting data(9, true);
  const Sampler sampler(data.file(), SamplerKind::sequential, 0, 4, 2);
  Numbers inputs(8);
  Numbers targets(8);
  sampler.batch(0, 0, 2, inputs, targets);
  EXPECT_EQ(targets, (Numbers{1, 2, kIgnoredTarget, 4, 5, kIgnoredTarget, 7, 8}));
  EXPECT_EQ(inputs, (Numbers{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Sampler, permutations_are_one_to_one) {
  for (std::uint64_t n = 1; n <= 300; ++n) {
    std::vector<bool> seen(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t p = permute(i, n, n * 77);
      ASSERT_LT(p, n);
      ASSERT_FALSE(seen[p]) << n << " " << i;
      seen[p] = true;
    }
  }
  EXPECT_NE(error_of([] { permute(3, 3, 0); }).find("beyond"), std::string::npos);
  const std::uint64_t huge = (std::uint64_t{1} << 62) + 12345;
  EXPECT_LT(permute(huge - 1, huge, 5), huge);
}

TEST(Sampler, permutations_look_random) {
  // Over many keys each position has equal frequency: 6 positions, 60000 keys, 10000 +- 5 sigma (91) each.
  std::array<std::array<int, 6>, 6> taken{};
  for (std::uint64_t key = 0; key < 60000; ++key) {
    for (std::uint64_t i = 0; i < 6; ++i) ++taken[i][permute(i, 6, key)];
  }
  for (const auto& row : taken) {
    for (const int n : row) EXPECT_NEAR(n, 10000, 457);
  }
  // Neighbours are separated: of 10000 pairs about one in 5000 stays adjacent.
  int neighbours = 0;
  for (std::uint64_t i = 0; i + 1 < 10000; ++i) {
    const auto a = static_cast<std::int64_t>(permute(i, 10000, 1));
    neighbours += std::abs(a - static_cast<std::int64_t>(permute(i + 1, 10000, 1))) == 1 ? 1 : 0;
  }
  EXPECT_LE(neighbours, 12);
}

TEST(Sampler, shuffle_yields_each_sample_once_per_epoch) {
  const Counting data(101);  // T = 10: 10 samples; G = 4, so epochs end within steps
  const Sampler sampler(data.file(), SamplerKind::shuffle, 3, 10, 4);
  std::vector<std::vector<std::int64_t>> epochs(3);
  for (std::int64_t at = 0; at < 30; ++at) {
    epochs[static_cast<std::size_t>(at / 10)].push_back(sampler.sample_index(at / 4, at % 4));
  }
  for (const auto& epoch : epochs) EXPECT_EQ(std::set<std::int64_t>(epoch.begin(), epoch.end()).size(), 10U);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  const Sampler other(data.file(), SamplerKind::shuffle, 4, 10, 4);
  std::vector<std::int64_t> first;
  for (std::int64_t at = 0; at < 10; ++at) first.push_back(other.sample_index(at / 4, at % 4));
  EXPECT_NE(first, epochs[0]);
  EXPECT_EQ(Sampler(data.file(), SamplerKind::shuffle, 3, 10, 4).sample_index(5, 2), sampler.sample_index(5, 2));
}

TEST(Sampler, ranks_and_micro_batches_cover_the_step) {
  const Counting data(200);
  for (const SamplerKind kind : {SamplerKind::sequential, SamplerKind::shuffle}) {
    const Sampler sampler(data.file(), kind, 5, 3, 12);
    Numbers whole(36);
    Numbers targets(36);
    sampler.batch(7, 0, 12, whole, targets);
    for (const std::int64_t ranks : {1, 2, 3, 4, 6}) {
      Numbers joined;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t count = 12 / ranks;
        for (std::int64_t i = 0; i < count; ++i) {
          Numbers row(3);
          Numbers row_targets(3);
          sampler.batch(7, rank * count + i, 1, row, row_targets);
          joined.insert(joined.end(), row.begin(), row.end());
        }
      }
      EXPECT_EQ(joined, whole);
    }
  }
}

TEST(Sampler, refuses_positions_out_of_range) {
  const Counting data(50);
  const Sampler sampler(data.file(), SamplerKind::sequential, 0, 4, 2);
  Numbers a(4);
  Numbers b(4);
  EXPECT_NE(error_of([&] { sampler.batch(0, 2, 1, a, b); }).find("out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { sampler.batch(-1, 0, 1, a, b); }).find("out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { sampler.batch(0, 0, 2, a, b); }).find("wrong size"), std::string::npos);
  EXPECT_NE(error_of([&] { sampler.sample(12, a, b); }).find("no sample 12"), std::string::npos);
  EXPECT_NE(error_of([&] { sampler.sample_index(std::int64_t{1} << 62, 0); }).find("too large"), std::string::npos);
  EXPECT_NE(error_of([&] { Sampler(data.file(), SamplerKind::shuffle, 0, 0, 1); }).find("sequence length"),
            std::string::npos);
  EXPECT_NE(error_of([&] { Sampler(data.file(), SamplerKind::shuffle, 0, 4, 0); }).find("global batch"),
            std::string::npos);
}

TEST(Sampler, names) {
  EXPECT_EQ(parse_sampler("shuffle"), SamplerKind::shuffle);
  EXPECT_EQ(parse_sampler("sequential"), SamplerKind::sequential);
  EXPECT_FALSE(parse_sampler("random"));
}

}  // namespace
}  // namespace fp8::data
