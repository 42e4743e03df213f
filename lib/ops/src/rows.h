/// Helpers of the host loops of this crate: checks, rows of strided views, loops over rows on all threads, and sums
/// over rows that do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/device/arena.h"
#include "fp8/device/device.h"
#include "fp8/device/profile.h"
#include "fp8/dtype/dispatch.h"
#include "fp8/tensor/tensor.h"

namespace fp8::ops {

using dtype::Bf16;
using dtype::DType;
using dtype::with_float_type;
using tensor::bytes_of;
using tensor::View;

/// FLOPs of an operation with `each` FLOPs per element, for profiles.
inline double flops_of(const View& v, double each) { return each * static_cast<double>(v.size()); }

/// Throws Error `op: what` unless `ok`.
inline void need(bool ok, const char* op, const char* what) {
  if (!ok) throw Error(std::string(op) + ": " + what);
}

/// Throws Error unless all views that are not empty are on the context's device.
template <class... Views>
void need_device(const device::Context& ctx, const char* op, const Views&... views) {
  need(((views.empty() || views.device == ctx.device) && ...), op, "a tensor is not on the context's device");
}

/// Whether two views have the same shape.
inline bool same_shape(const View& a, const View& b) { return a.rank == b.rank && a.shape == b.shape; }

/// Whether the last dimension has unit stride.
inline bool unit_last_stride(const View& v) {
  const auto last = static_cast<std::size_t>(v.rank - 1);
  return v.rank >= 1 && (v.stride[last] == 1 || v.shape[last] <= 1);
}

/// Number of threads for a loop over `work` elements: one for short loops.
inline int threads_for(std::int64_t work) { return work < 16384 ? 1 : device::host_threads(); }

/// Calls f(i) for i in [0, count), on threads_for(count * work_each) threads. f must not throw, and its result for one
/// i must not depend on other i.
template <class F>
void parallel_for(std::int64_t count, std::int64_t work_each, F&& f) {
  const int threads = threads_for(count * std::max<std::int64_t>(work_each, 1));
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t i = 0; i < count; ++i) f(i);
}

/// Returns i / extent and sets `rest` to i % extent, in 32 bits if possible, because 64-bit divisions are slow on a
/// GPU.
FP8_HD inline std::int64_t divide(std::int64_t i, std::int64_t extent, std::int64_t& rest) {
  if (((i | extent) >> 32) == 0) {
    const auto n = static_cast<std::uint32_t>(i), d = static_cast<std::uint32_t>(extent);
    rest = n % d;
    return n / d;
  }
  rest = i % extent;
  return i / extent;
}

/// The rows of a view with unit last stride: its last dimension, for every index of the other dimensions. Also an
/// argument of kernels.
template <class T>
class StridedRows {
 public:
  /// An empty view has no rows.
  explicit StridedRows(const View& v) : data_(v.empty() ? nullptr : v.as<T>()) {
    if (v.rank == 0) return;
    columns_ = v.shape[static_cast<std::size_t>(v.rank - 1)];
    count_ = 1;
    for (int d = v.rank - 2, outer = 0; d >= 0; --d, ++outer) {
      extent_[static_cast<std::size_t>(outer)] = v.shape[static_cast<std::size_t>(d)];
      stride_[static_cast<std::size_t>(outer)] = v.stride[static_cast<std::size_t>(d)];
      count_ *= v.shape[static_cast<std::size_t>(d)];
    }
  }
  /// Number of rows.
  FP8_HD std::int64_t count() const { return count_; }
  /// Elements of one row.
  FP8_HD std::int64_t columns() const { return columns_; }
  /// Whether the view was empty.
  FP8_HD bool empty() const { return data_ == nullptr; }
  /// First element of row i.
  FP8_HD T* operator[](std::int64_t i) const {
    if (i < extent_[0]) return data_ + i * stride_[0];
    std::int64_t inner = 0, middle = 0;
    i = divide(divide(i, extent_[0], inner), extent_[1], middle);
    return data_ + inner * stride_[0] + middle * stride_[1] + i * stride_[2];
  }

 private:
  T* data_;
  std::int64_t count_ = 0, columns_ = 0;
  std::array<std::int64_t, 3> extent_{1, 1, 1}, stride_{};  // innermost of the outer dimensions first
};

/// The view with a last dimension of extent 1 appended, for tensors of one element per row, such as rstd.
inline View with_unit_column(View v) {
  if (v.empty() || v.rank >= 4) return v;
  v.shape[static_cast<std::size_t>(v.rank)] = 1;
  v.stride[static_cast<std::size_t>(v.rank)] = 1;
  ++v.rank;
  return v;
}

/// Blocks of rows, whose number depends on the number of rows only, so that sums over rows do not depend on threads.
struct RowBlocks {
  std::int64_t rows;   ///< rows in all
  std::int64_t count;  ///< blocks, at most 64
  std::int64_t each;   ///< rows of a block; the last may have fewer

  /// Blocks of at least 32 rows.
  explicit RowBlocks(std::int64_t row_count)
      : rows(row_count),
        count(std::clamp<std::int64_t>(divide_up(row_count, 32), 1, 64)),
        each(divide_up(row_count, count)) {}
  /// First row of block b.
  std::int64_t begin(std::int64_t b) const { return std::min(rows, b * each); }
  /// One past the last row of block b.
  std::int64_t end(std::int64_t b) const { return std::min(rows, (b + 1) * each); }
};

/// out[c] += sum over blocks of partial[block][c]: the second half of a sum over rows.
inline void add_partial_sums(const float* partial, std::int64_t blocks, std::int64_t columns, float* out) {
  constexpr std::int64_t kSlice = 64;
  parallel_for(divide_up(columns, kSlice), blocks * kSlice, [=](std::int64_t slice) {
    const std::int64_t begin = slice * kSlice, end = std::min(columns, begin + kSlice);
    for (std::int64_t c = begin; c < end; ++c) {
      double sum = 0;
      for (std::int64_t b = 0; b < blocks; ++b) sum += static_cast<double>(partial[b * columns + c]);
      out[c] += static_cast<float>(sum);
    }
  });
}

}  // namespace fp8::ops
