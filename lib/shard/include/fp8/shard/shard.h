/// Who owns which rows of a tensor, and the two movements of sharded training: rows gathered (as bf16, f32 or FP8
/// bytes), gradients summed and scattered. Tensors of one dimension are split like matrices with one column. A rank may
/// own nothing of a tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "fp8/comm/comm.h"
#include "fp8/tensor/tensor.h"

namespace fp8::shard {

using tensor::View;

/// A half-open range of rows.
struct Rows {
  std::int64_t begin = 0;  ///< first row
  std::int64_t end = 0;    ///< one past the last
  /// Number of rows.
  std::int64_t count() const { return end - begin; }
  bool operator==(const Rows&) const = default;
};

/// Rows of `rank` when `rows` are split over `size` ranks as evenly as it goes: the first rows % size ranks hold one
/// more.
Rows rows_of(std::int64_t rows, int rank, int size);

/// Starts gathering: mine [rows_of(rank), C...] of every rank into all [R, C...], same dtype, both contiguous. With one
/// rank copies unless they are the same memory.
comm::Request start_gather(comm::Communicator& group, const View& mine, const View& all);

/// Starts summing full f32 [R, C...] over ranks and scattering its rows into mine f32 [rows_of(rank), C...]; full is
/// left undefined. With one rank copies unless they are the same memory.
comm::Request start_reduce_scatter(comm::Communicator& group, const View& full, const View& mine);

}  // namespace fp8::shard
