// Rows of each rank, and sharding over one rank.
#include <gtest/gtest.h>

#include "shard_cases.h"

namespace fp8::shard {
namespace {

TEST(RowsOf, AreEvenOrderedAndComplete) {
  for (const std::int64_t rows : {0, 1, 2, 3, 4, 5, 127, 128, 1000}) {
    for (int size = 1; size <= 9; ++size) {
      std::int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const RowRange own = rows_of(rows, rank, size);
        EXPECT_EQ(own.begin, next);
        EXPECT_EQ(own.count(), rows / size + (rank < rows % size ? 1 : 0));
        next = own.end;
      }
      EXPECT_EQ(next, rows);
    }
  }
  EXPECT_EQ(rows_of(7, 1, 3), (RowRange{3, 5}));
  EXPECT_EQ(rows_of(2, 3, 4), (RowRange{2, 2})) << "a rank without rows";
}

TEST(RowsOf, InvalidRanksAreErrors) {
  EXPECT_THROW(rows_of(4, 2, 2), Error);
  EXPECT_THROW(rows_of(4, -1, 2), Error);
  EXPECT_THROW(rows_of(-1, 0, 2), Error);
}

TEST(Sharding, OneRank) { check_sharding(*comm::solo()); }

TEST(Sharding, OneRankDoesNotCopyInPlace) {
  const std::unique_ptr<comm::Communicator> group = comm::solo();
  const Tensor t(DType::f32, {4, 4});
  t.as<float>()[5] = 3;
  start_gathers(*group, std::array{Sharded{t.view(), t.view()}}).wait();
  start_reduce_scatters(*group, std::array{Sharded{t.view(), t.view()}}).wait();
  EXPECT_EQ(t.as<float>()[5], 3);
}

}  // namespace
}  // namespace fp8::shard
