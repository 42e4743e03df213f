/// Row sharding of tensors over ranks: the rows of each rank, the all-gather of weights (bf16, f32 or FP8 codes) and
/// the reduce-scatter of gradients. One-dimensional tensors are split like matrices with one column. A shard may be
/// empty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fp8/comm/comm.h"
#include "fp8/tensor/tensor.h"

namespace fp8::shard {

using tensor::View;

/// A half-open range of rows.
struct RowRange {
  std::int64_t begin = 0;  ///< first row
  std::int64_t end = 0;    ///< one past the last
  /// Number of rows.
  std::int64_t count() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

/// Rows of `rank` when `rows` are split over `size` ranks: rows / size each, and one more for the first rows % size
/// ranks. Throws Error for a negative number of rows or a rank outside [0, size).
RowRange rows_of(std::int64_t rows, int rank, int size);

/// The sizes of rows_of() of each rank, in units of which a row has `row`: blocks of a collective.
std::vector<std::int64_t> blocks_of(std::int64_t rows, std::int64_t row, int size);

/// An exchange that was started. In a dry context nothing travels.
struct Pending {
  comm::Request request;
  double bytes = 0;         ///< device::Exchange::bytes
  std::int64_t number = 0;  ///< of its start in a profile that records
};

/// A tensor and this rank's rows of it.
struct Sharded {
  View mine;   ///< [rows_of(rank), C...]
  View whole;  ///< [R, C...]
};

/// Starts all-gathers of several tensors, in one group where the communicator has groups: mine [rows_of(rank), C...] of
/// every rank into whole [R, C...]; same dtype and device, both contiguous. With one rank copies unless both are the
/// same memory. Throws Error when the views do not fit; all are checked before any is started.
comm::Request start_gathers(comm::Communicator& device_comm, std::span<const Sharded> tensors);

/// Starts reduce-scatters (sums) of several tensors, in one group where the communicator has groups: each whole f32
/// [R, C...] into mine f32 [rows_of(rank), C...]; the content of whole is undefined afterwards. With one rank copies
/// unless both are the same memory. Throws Error when the views do not fit; all are checked before any is started.
comm::Request start_reduce_scatters(comm::Communicator& device_comm, std::span<const Sharded> tensors);

}  // namespace fp8::shard
