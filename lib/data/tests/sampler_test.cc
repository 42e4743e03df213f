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
  const Sampler sampler(data.file(), SamplerKind::sequential, 9, 4, 3, DocumentMode::joined);
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
  EXPECT_EQ(Sampler(Counting(13).file(), SamplerKind::sequential, 0, 4, 1, DocumentMode::joined).samples(), 3);
  EXPECT_EQ(Sampler(Counting(5).file(), SamplerKind::sequential, 0, 4, 1, DocumentMode::joined).samples(), 1);
  const Counting data(4);
  EXPECT_EQ(error_of([&] { Sampler(data.file(), SamplerKind::sequential, 0, 4, 1, DocumentMode::joined); }),
            data.file().path() + ": 4 tokens are too few for sequences of 4 tokens, which need at least 5");
}

TEST(Sampler, a_mask_excludes_targets) {
  const Counting data(9, true);
  const Sampler sampler(data.file(), SamplerKind::sequential, 0, 4, 2, DocumentMode::joined);
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
  // Neighbours are separated: about two of 10000 pairs stay adjacent.
  int neighbours = 0;
  for (std::uint64_t i = 0; i + 1 < 10000; ++i) {
    const auto a = static_cast<std::int64_t>(permute(i, 10000, 1));
    neighbours += std::abs(a - static_cast<std::int64_t>(permute(i + 1, 10000, 1))) == 1 ? 1 : 0;
  }
  EXPECT_LE(neighbours, 12);
}

TEST(Sampler, shuffle_yields_each_sample_once_per_epoch) {
  const Counting data(101);  // T = 10: 10 samples; G = 4, so epochs end within steps
  const Sampler sampler(data.file(), SamplerKind::shuffle, 3, 10, 4, DocumentMode::joined);
  std::vector<std::vector<std::int64_t>> epochs(3);
  for (std::int64_t at = 0; at < 30; ++at) {
    epochs[static_cast<std::size_t>(at / 10)].push_back(sampler.sample_index(at / 4, at % 4));
  }
  for (const auto& epoch : epochs) EXPECT_EQ(std::set<std::int64_t>(epoch.begin(), epoch.end()).size(), 10U);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  const Sampler other(data.file(), SamplerKind::shuffle, 4, 10, 4, DocumentMode::joined);
  std::vector<std::int64_t> first;
  for (std::int64_t at = 0; at < 10; ++at) first.push_back(other.sample_index(at / 4, at % 4));
  EXPECT_NE(first, epochs[0]);
  EXPECT_EQ(Sampler(data.file(), SamplerKind::shuffle, 3, 10, 4, DocumentMode::joined).sample_index(5, 2),
            sampler.sample_index(5, 2));
}

TEST(Sampler, ranks_and_micro_batches_cover_the_step) {
  const Counting data(200);
  for (const SamplerKind kind : {SamplerKind::sequential, SamplerKind::shuffle}) {
    const Sampler sampler(data.file(), kind, 5, 3, 12, DocumentMode::joined);
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

TEST(Sampler, a_start_continues_with_another_batch) {
  const Counting data(101);  // 10 samples
  const Sampler before(data.file(), SamplerKind::shuffle, 3, 10, 4, DocumentMode::joined);
  Sampler after(data.file(), SamplerKind::shuffle, 3, 10, 6, DocumentMode::joined);
  after.begin_at({2, 8});
  std::vector<std::int64_t> one, other;
  for (std::int64_t at = 0; at < 26; ++at) {
    one.push_back(before.sample_index(at / 4, at % 4));
    other.push_back(at < 8 ? one.back() : after.sample_index(2 + (at - 8) / 6, (at - 8) % 6));
  }
  EXPECT_EQ(one, other);
  EXPECT_NE(error_of([&] { (void)after.sample_index(1, 0); }).find("out of range"), std::string::npos);
}

TEST(Sampler, refuses_positions_out_of_range) {
  const Counting data(50);
  const Sampler sampler(data.file(), SamplerKind::sequential, 0, 4, 2, DocumentMode::joined);
  Numbers a(4);
  Numbers b(4);
  EXPECT_NE(error_of([&] { sampler.batch(0, 2, 1, a, b); }).find("out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { sampler.batch(-1, 0, 1, a, b); }).find("out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { sampler.batch(0, 0, 2, a, b); }).find("wrong size"), std::string::npos);
  EXPECT_NE(error_of([&] { sampler.sample(12, a, b); }).find("no sample 12"), std::string::npos);
  EXPECT_NE(error_of([&] { sampler.sample_index(std::int64_t{1} << 62, 0); }).find("too large"), std::string::npos);
  EXPECT_NE(error_of([&] {
              Sampler(data.file(), SamplerKind::shuffle, 0, 0, 1, DocumentMode::joined);
            }).find("sequence length"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { Sampler(data.file(), SamplerKind::shuffle, 0, 4, 0, DocumentMode::joined); }).find("global batch"),
      std::string::npos);
}

// A file of documents of these lengths, whose tokens are 1, 2, ...; with a mask, every third token is excluded.
class Documents {
 public:
  explicit Documents(const std::vector<int>& lengths, bool mask = false, std::optional<std::int64_t> packed = {}) {
    TokenInfo info;
    info.vocab_size = 1000;
    info.mask = mask;
    info.sequence_length = packed;
    TokenWriter writer(folder_.at("d.h5"), info, false);
    std::uint32_t next = 0;
    for (const int length : lengths) {
      std::vector<std::uint32_t> tokens(static_cast<std::size_t>(length));
      std::vector<std::uint8_t> counts(mask ? tokens.size() : 0);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = ++next;
        if (mask) counts[i] = next % 3 == 0 ? 0 : 1;
      }
      writer.append(tokens, counts);
      writer.end_document();
    }
    writer.finish();
    file_.emplace(folder_.at("d.h5"));
  }
  const TokenFile& file() const { return *file_; }

 private:
  TemporaryFolder folder_;
  std::optional<TokenFile> file_;
};

constexpr std::int32_t kNone = kIgnoredTarget;

TEST(Sampler, a_separate_document_is_a_sample) {
  const Documents data({3, 1, 4});
  const Sampler sampler(data.file(), SamplerKind::sequential, 0, 4, 3, DocumentMode::separate);
  EXPECT_EQ(sampler.samples(), 3);
  EXPECT_TRUE(sampler.separate());
  EXPECT_EQ(sampler.split_documents(), 0);
  EXPECT_EQ(sampler.padding(), 4);
  Numbers inputs(12), targets(12), starts(12);
  EXPECT_EQ(sampler.batch(0, 0, 3, inputs, targets, starts), (6 + 1) + (1 + 6) + 10);
  EXPECT_EQ(inputs, (Numbers{1, 2, 3, 0, 4, 0, 0, 0, 5, 6, 7, 8}));
  EXPECT_EQ(targets, (Numbers{2, 3, kNone, kNone, kNone, kNone, kNone, kNone, 6, 7, 8, kNone}));
  EXPECT_EQ(starts, (Numbers{0, 0, 0, 3, 0, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(sampler.bounds(3).count, 6);
  EXPECT_EQ(sampler.bounds(3).longest, 4);
}

TEST(Sampler, long_documents_are_split_without_losing_targets) {
  const Documents data({9, 2, 5, 6});  // T = 4: 8 targets are two samples, 1 is one, 4 are one, 5 are two
  const Sampler sampler(data.file(), SamplerKind::sequential, 0, 4, 6, DocumentMode::separate);
  EXPECT_EQ(sampler.samples(), 6);
  EXPECT_EQ(sampler.split_documents(), 2);
  EXPECT_EQ(sampler.padding(), 2 + 2);
  Numbers inputs(24), targets(24), starts(24);
  EXPECT_EQ(sampler.batch(0, 0, 6, inputs, targets, starts), 10 + 10 + (3 + 3) + 10 + 10 + (3 + 3));
  EXPECT_EQ(inputs, (Numbers{1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 0, 0, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 0, 0}));
  EXPECT_EQ(targets, (Numbers{2,  3,  4,  5,  6,  7,  8,  9,  11, kNone, kNone, kNone,
                              13, 14, 15, 16, 18, 19, 20, 21, 22, kNone, kNone, kNone}));
  EXPECT_EQ(starts, (Numbers{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2}));
}

TEST(Sampler, packed_sequences_keep_their_documents_apart) {
  const Documents data({2, 3, 1, 4, 2}, true, 6);
  const Sampler sampler(data.file(), SamplerKind::sequential, 0, 6, 2, DocumentMode::automatic);
  EXPECT_EQ(sampler.samples(), 2);
  EXPECT_EQ(sampler.padding(), 0);
  EXPECT_EQ(sampler.bounds(2).count, 6);
  EXPECT_EQ(sampler.bounds(1).longest, 4);
  Numbers inputs(12), targets(12), starts(12);
  EXPECT_EQ(sampler.batch(0, 0, 2, inputs, targets, starts), (3 + 6 + 1) + (10 + 3));
  EXPECT_EQ(inputs, (Numbers{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(targets, (Numbers{2, kNone, 4, 5, kNone, kNone, 8, kNone, 10, kNone, kNone, kNone}));
  EXPECT_EQ(starts, (Numbers{0, 0, 2, 2, 2, 5, 0, 0, 0, 0, 4, 4}));
  const Sampler joined(data.file(), SamplerKind::sequential, 0, 6, 2, DocumentMode::joined);
  EXPECT_FALSE(joined.separate());
  EXPECT_EQ(joined.bounds(2).count, 0);
  EXPECT_EQ(joined.batch(0, 0, 2, inputs, targets), 21 + 21);
  EXPECT_EQ(targets, (Numbers{2, kNone, 4, 5, kNone, kNone, 8, kNone, 10, 11, kNone, kNone}));
}

TEST(Sampler, a_document_that_crosses_packed_sequences_is_one_in_each) {
  const Documents data({3, 5, 4}, false, 4);
  const Sampler sampler(data.file(), SamplerKind::sequential, 0, 4, 3, DocumentMode::automatic);
  Numbers inputs(12), targets(12), starts(12);
  sampler.batch(0, 0, 3, inputs, targets, starts);
  EXPECT_EQ(starts, (Numbers{0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(targets, (Numbers{2, 3, kNone, kNone, 6, 7, 8, kNone, 10, 11, 12, kNone}));
  EXPECT_EQ(sampler.bounds(1).count, 2);
  EXPECT_EQ(sampler.bounds(1).longest, 4);
}

TEST(Sampler, a_mask_or_packing_makes_documents_separate) {
  const auto separate = [](const Documents& data, DocumentMode mode) {
    return Sampler(data.file(), SamplerKind::shuffle, 0, 4, 1, mode).separate();
  };
  const Documents plain({8, 8}), masked({8, 8}, true), packed({3, 1, 4}, false, 4);
  EXPECT_FALSE(separate(plain, DocumentMode::automatic));
  EXPECT_TRUE(separate(plain, DocumentMode::separate));
  EXPECT_TRUE(separate(masked, DocumentMode::automatic));
  EXPECT_FALSE(separate(masked, DocumentMode::joined));
  EXPECT_TRUE(separate(packed, DocumentMode::automatic));
  EXPECT_FALSE(separate(packed, DocumentMode::joined));
}

// Every token but the first of a document is a target exactly once in an epoch, and the bounds hold, whatever the
// lengths; starts and pairs agree.
TEST(Sampler, separate_documents_have_each_target_once) {
  for (const std::int64_t t : {1, 2, 3, 7, 16}) {
    const std::vector<int> lengths{1, 2, 3, 17, 16, 15, 8, 7, 6, 1, 1, 33, 5};
    const Documents data(lengths);
    const Sampler sampler(data.file(), SamplerKind::shuffle, 3, t, 1, DocumentMode::separate);
    std::multiset<std::int32_t> seen, wanted;
    std::int32_t next = 0;
    for (const int length : lengths) {
      for (int i = 1; i < length; ++i) wanted.insert(next + i + 1);
      next += length;
    }
    const auto row = static_cast<std::size_t>(t);
    Numbers inputs(row), targets(row), starts(row);
    for (std::int64_t step = 0; step < sampler.samples(); ++step) {
      const std::int64_t pairs = sampler.batch(step, 0, 1, inputs, targets, starts);
      std::int64_t counted = 0, documents = 0;
      for (std::size_t i = 0; i < row; ++i) {
        if (targets[i] != kNone) seen.insert(targets[i]);
        if (targets[i] != kNone) {
          EXPECT_EQ(targets[i], inputs[i] + 1);
        }
        const std::int64_t length = static_cast<std::int64_t>(i) - starts[i] + 1;
        EXPECT_LE(length, sampler.bounds(1).longest);
        counted += length;
        documents += length == 1 ? 1 : 0;
      }
      EXPECT_LE(documents, sampler.bounds(1).count);
      EXPECT_EQ(pairs, counted);
    }
    EXPECT_EQ(seen, wanted) << t;
  }
}

TEST(Sampler, refuses_starts_of_the_wrong_size) {
  const Documents data({3, 4}, true);
  const Sampler separate(data.file(), SamplerKind::sequential, 0, 4, 2, DocumentMode::separate);
  const Sampler joined(data.file(), SamplerKind::sequential, 0, 4, 2, DocumentMode::joined);
  Numbers a(4), b(4), c(3);
  EXPECT_NE(error_of([&] { separate.batch(0, 0, 1, a, b, c); }).find("wrong size"), std::string::npos);
  EXPECT_NE(error_of([&] { separate.sample(0, a, b, c); }).find("wrong size"), std::string::npos);
  Numbers d(4);
  EXPECT_NE(error_of([&] { joined.batch(0, 0, 1, a, b, d); }).find("wrong size"), std::string::npos);
}

}  // namespace
}  // namespace fp8::data
