/// Test cases of sharding for a group of any size.
#pragma once

#include <array>
#include <cstring>
#include <vector>

#include "fp8/shard/shard.h"
#include "fp8_test.h"

namespace fp8::shard {

using dtype::DType;
using tensor::Tensor;
using test::error_of;

/// All-gather returns the rows in order: elements of 1, 2 and 4 bytes, the shard separate or in place, fewer rows than
/// ranks, and no rows.
inline void check_gather(comm::Communicator& device_comm) {
  for (const DType type : {DType::f32, DType::bf16, DType::e4m3}) {
    for (const std::int64_t rows : {0, 1, 2, 3, 7, 64}) {
      for (const bool in_place : {false, true}) {
        const Tensor expected(type, {rows, 3}), all(type, {rows, 3});
        const std::size_t n = expected.view().bytes();
        auto* bytes = static_cast<std::uint8_t*>(expected.view().data);
        for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::uint8_t>(i * 5 + 1);
        const RowRange own = rows_of(rows, device_comm.rank(), device_comm.size());
        const View source = expected.view().rows(own.begin, own.end), place = all.view().rows(own.begin, own.end);
        if (in_place && own.count() > 0) std::memcpy(place.data, source.data, source.bytes());
        start_gathers(device_comm, std::array{Sharded{in_place ? place : source, all.view()}}).wait();
        EXPECT_TRUE(n == 0 || std::memcmp(all.view().data, bytes, n) == 0) << rows << " rows";
      }
    }
  }
}

/// Reduce-scatter sums the gradients of all ranks, and each rank gets its rows.
inline void check_reduce_scatter(comm::Communicator& device_comm) {
  const int size = device_comm.size();
  for (const std::int64_t rows : {0, 1, 2, 3, 7, 64}) {
    const RowRange own = rows_of(rows, device_comm.rank(), size);
    const Tensor full(DType::f32, {rows, 2, 2}), mine(DType::f32, {own.count(), 2, 2});
    for (std::int64_t i = 0; i < rows * 4; ++i) {
      full.as<float>()[i] = static_cast<float>(i + 1) * static_cast<float>(device_comm.rank() + 1);
    }
    start_reduce_scatters(device_comm, std::array{Sharded{mine.view(), full.view()}}).wait();
    for (std::int64_t i = 0; i < own.count() * 4; ++i) {
      EXPECT_EQ(mine.as<float>()[i], static_cast<float>((own.begin * 4 + i + 1) * size * (size + 1) / 2));
    }
  }
}

/// Matrices and vectors with one request each for all gathers and all sums.
inline void check_several(comm::Communicator& device_comm) {
  const Tensor matrix(DType::f32, {7, 3}), vector(DType::f32, {5}), terms(DType::f32, {7, 3}),
      empty(DType::f32, {0, 3});
  const RowRange of_7 = rows_of(7, device_comm.rank(), device_comm.size()),
                 of_5 = rows_of(5, device_comm.rank(), device_comm.size());
  const View matrix_rows = matrix.view().rows(of_7.begin, of_7.end), own = vector.view().rows(of_5.begin, of_5.end);
  for (std::int64_t i = 0; i < 3 * of_7.count(); ++i)
    matrix_rows.as<float>()[i] = static_cast<float>(3 * of_7.begin + i);
  for (std::int64_t i = 0; i < of_5.count(); ++i) own.as<float>()[i] = static_cast<float>(of_5.begin + i);
  for (std::int64_t i = 0; i < 21; ++i) terms.as<float>()[i] = static_cast<float>(i);
  const View mine = terms.view().rows(of_7.begin, of_7.end);
  comm::Request sums = start_reduce_scatters(device_comm, std::vector<Sharded>{{mine, terms.view()}});
  start_gathers(device_comm,
                std::vector<Sharded>{{matrix_rows, matrix.view()}, {empty.view(), empty.view()}, {own, vector.view()}})
      .wait();
  sums.wait();
  for (int i = 0; i < 21; ++i) EXPECT_EQ(matrix.as<float>()[i], static_cast<float>(i));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(vector.as<float>()[i], static_cast<float>(i));
  for (std::int64_t i = 0; i < 3 * of_7.count(); ++i)
    EXPECT_EQ(mine.as<float>()[i], static_cast<float>((3 * of_7.begin + i) * device_comm.size()));
}

/// Views that do not fit are errors on every rank before communication starts.
inline void check_refusals(comm::Communicator& device_comm) {
  const RowRange own = rows_of(6, device_comm.rank(), device_comm.size());
  const Tensor all(DType::f32, {6, 4}), mine(DType::f32, {own.count(), 4}), more(DType::f32, {own.count() + 1, 4});
  const Tensor narrow(DType::f32, {own.count(), 3}), half(DType::bf16, {own.count(), 4}), scalar(DType::f32, {});
  const Tensor wide(DType::f32, {6, 8}), halves(DType::bf16, {6, 4});
  const auto gather = [&](const View& part, const View& whole) {
    return error_of([&] { start_gathers(device_comm, std::array{Sharded{part, whole}}).wait(); });
  };
  EXPECT_EQ(gather(more.view(), all.view()), "gather: the shard does not have this rank's rows of the tensor");
  EXPECT_EQ(gather(narrow.view(), all.view()), "gather: the shard does not have this rank's rows of the tensor");
  EXPECT_EQ(gather(half.view(), all.view()), "gather: the shard and the tensor differ in type or device");
  EXPECT_EQ(gather(mine.view(), wide.view().columns(0, 4)), "gather: needs contiguous views");
  EXPECT_EQ(gather(scalar.view(), scalar.view()), "gather: a scalar has no rows");
  EXPECT_NE(error_of([&] {
              start_reduce_scatters(device_comm, std::array{Sharded{half.view(), halves.view()}}).wait();
            }),
            "no error")
      << "only f32";
  const std::vector<Sharded> second_wrong{{mine.view(), all.view()}, {more.view(), all.view()}};
  EXPECT_EQ(error_of([&] { start_gathers(device_comm, second_wrong).wait(); }),
            "gather: the shard does not have this rank's rows of the tensor");
}

/// Runs all cases.
inline void check_sharding(comm::Communicator& device_comm) {
  check_gather(device_comm);
  check_reduce_scatter(device_comm);
  check_several(device_comm);
  check_refusals(device_comm);
}

}  // namespace fp8::shard
