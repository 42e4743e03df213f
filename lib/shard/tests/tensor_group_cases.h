/// What ranks of tensor parallelism exchange, compared with sums of numbers that are exact in every order.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "fp8/device/arena.h"
#include "fp8/dtype/convert.h"
#include "fp8/shard/tensor_group.h"

namespace fp8::shard {

/// A context with memory, a group of ranks, and matrices.
class TensorRanks {
 public:
  /// `copies`: adjacent ranks with the same key and value heads.
  TensorRanks(comm::Communicator& ranks, int copies) : mesh_(ranks, {1, 1, 1, 1, ranks.size()}), group(mesh_, copies) {
    ctx.arena = &arena_;
  }

  /// A matrix whose element i is value(i), rounded.
  template <class Value>
  static tensor::Tensor matrix(dtype::DType type, std::int64_t rows, std::int64_t columns, Value&& value) {
    tensor::Tensor t(type, {rows, columns});
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const auto v = static_cast<float>(value(i));
      if (type == dtype::DType::f32)
        t.as<float>()[i] = v;
      else
        t.as<dtype::Bf16>()[i] = dtype::to_bf16(v);
    }
    return t;
  }
  /// Element i.
  static float at(const tensor::Tensor& t, std::int64_t i) {
    return t.view().dtype == dtype::DType::f32 ? t.as<float>()[i] : dtype::to_float(t.as<dtype::Bf16>()[i]);
  }

 private:
  device::Arena arena_{std::size_t{1} << 20, device::DeviceType::host};
  comm::Mesh mesh_;

 public:
  device::Context ctx{};  ///< on the host
  TensorGroup group;      ///< the ranks
};

/// Rows are gathered, at once and by shifts, and partial sums added with one bias and one rounding; some ranks have no
/// rows.
inline void check_rows(comm::Communicator& ranks, dtype::DType type, std::int64_t rows) {
  constexpr std::int64_t kColumns = 3;
  TensorRanks r(ranks, 1);
  const RowRange own = rows_of(rows, ranks.rank(), ranks.size());
  EXPECT_EQ(r.group.first_row(rows, ranks.rank()), own.begin);
  EXPECT_EQ(r.group.first_row(rows, ranks.size()), rows);
  const auto value = [](std::int64_t i) { return static_cast<double>(i % 97); };
  const tensor::Tensor mine = r.matrix(type, own.count(), kColumns,
                                       [&](std::int64_t i) { return value(own.begin * kColumns + i); }),
                       all = r.matrix(type, rows, kColumns, [](std::int64_t) { return -1.0; });
  r.group.gather(r.ctx, mine.view(), all.view());
  for (std::int64_t i = 0; i < rows * kColumns; ++i)
    ASSERT_EQ(r.at(all, i), value(i)) << i << " of " << rows << " rows";
  const tensor::Tensor shifted = r.matrix(type, rows, kColumns, [](std::int64_t) { return -1.0; });
  for (int places = 1; places < ranks.size(); ++places) {
    const RowRange from = rows_of(rows, (ranks.rank() - places + ranks.size()) % ranks.size(), ranks.size());
    r.group.start_shift(r.ctx, mine.view(), places, shifted.view().rows(from.begin, from.end))();
  }
  for (std::int64_t i = 0; i < rows * kColumns; ++i) {
    const bool is_own = i / kColumns >= own.begin && i / kColumns < own.end;
    ASSERT_EQ(r.at(shifted, i), is_own ? -1 : value(i)) << i << " of " << rows << " rows";
  }
  // 1 on rank 0 and half of the distance of 1 to the next bf16 on the others, which only one rounding adds up.
  const double step = 0x1p-8;
  const tensor::Tensor partial =
                           r.matrix(type, rows, kColumns,
                                    [&](std::int64_t i) {
                                      return i % 2 == 0 ? value(i) * (1 + ranks.rank()) : ranks.rank() == 0 ? 1 : step;
                                    }),
                       bias = r.matrix(type, 1, kColumns, [&](std::int64_t) { return step; });
  r.group.sum(r.ctx, partial.view(), bias.view().reshaped({kColumns}), mine.view());
  for (std::int64_t i = 0; i < own.count() * kColumns; ++i) {
    const std::int64_t element = own.begin * kColumns + i, n = ranks.size();
    double sum = 0;
    for (std::int64_t t = 0; t < n; ++t) {
      sum += element % 2 == 0 ? value(element) * static_cast<double>(1 + t) : t == 0 ? 1 : step;
    }
    const auto with_bias = static_cast<float>(sum + step);
    ASSERT_EQ(r.at(mine, i), type == dtype::DType::f32 ? with_bias : dtype::to_float(dtype::to_bf16(with_bias)))
        << element << " of " << rows << " rows";
  }
}

/// The first of the ranks with the same heads gets the sum of these ranks, the others zeros; columns between are kept.
inline void check_copies(comm::Communicator& ranks, dtype::DType type, int copies) {
  TensorRanks r(ranks, copies);
  const tensor::Tensor wide =
      r.matrix(type, 5, 7, [&](std::int64_t i) { return static_cast<double>(i + 1) * (1 + ranks.rank()); });
  r.group.sum_copies(r.ctx, wide.view().columns(2, 6));
  const int first = ranks.rank() / copies * copies;
  int weight = 0;
  for (int rank = first; rank < first + copies; ++rank) weight += 1 + rank;
  if (ranks.rank() != first) weight = 0;
  for (std::int64_t i = 0; i < 35; ++i) {
    const bool inside = i % 7 >= 2 && i % 7 < 6;
    const auto want = static_cast<float>((i + 1) * (inside ? weight : 1 + ranks.rank()));
    ASSERT_EQ(r.at(wide, i), type == dtype::DType::f32 ? want : dtype::to_float(dtype::to_bf16(want)))
        << "element " << i << ", " << copies << " copies";
  }
}

/// All of it, for groups of any size.
inline void check_tensor_group(comm::Communicator& ranks) {
  for (const dtype::DType type : {dtype::DType::f32, dtype::DType::bf16}) {
    for (const std::int64_t rows : {1, 3, 8, 13}) check_rows(ranks, type, rows);
    for (int copies = 1; copies <= ranks.size(); ++copies)
      if (ranks.size() % copies == 0) check_copies(ranks, type, copies);
  }
  TensorRanks r(ranks, 1);
  const int last = ranks.size() - 1;
  const auto mine = [&](std::int64_t i) { return i == ranks.rank() ? 100.0 : -static_cast<double>(ranks.rank()); };
  const tensor::Tensor most = r.matrix(dtype::DType::f32, 1, 20, mine),
                       total = r.matrix(dtype::DType::f32, 1, 20, mine);
  r.group.maximum(r.ctx, most.view());
  r.group.total(r.ctx, total.view());
  for (std::int64_t i = 0; i < 20; ++i) {
    float sum = 0;
    for (int rank = 0; rank <= last; ++rank) sum += i == rank ? 100.0f : -static_cast<float>(rank);
    EXPECT_EQ(r.at(most, i), i <= last ? 100.0f : 0.0f) << i;
    EXPECT_EQ(r.at(total, i), sum) << i;
  }
  const tensor::Tensor amaxes = r.matrix(dtype::DType::f32, 1, 3, [&](std::int64_t i) {
    return i == 2 && ranks.rank() == 0 ? std::nan("")
                                       : static_cast<double>(i == 0 ? ranks.rank() : last - ranks.rank());
  });
  r.group.reduce(r.ctx, amaxes.view());
  EXPECT_EQ(r.at(amaxes, 0), static_cast<float>(last));
  EXPECT_EQ(r.at(amaxes, 1), static_cast<float>(last));
  EXPECT_TRUE(std::isnan(r.at(amaxes, 2))) << "NaN counts as the largest";
}

}  // namespace fp8::shard
