/// Blocks: the boxes into which a checkpoint divides a tensor, one in each file that holds a part of it. Any boxes that
/// cover each element exactly once are a tensor; how a run divides its tensors is not known here.
#pragma once

#include "fp8/ckpt/tensor_meta.h"

namespace fp8::ckpt {

/// A box of a tensor, in each dimension d the indices [offset[d], offset[d] + extent[d]). In a scalar both are empty,
/// and the block is its one element.
struct Block {
  std::vector<std::int64_t> offset;  ///< the first index of each dimension
  std::vector<std::int64_t> extent;  ///< the number of indices of each dimension, which is the shape of the block

  /// First row of the tensor, that is index of its first dimension, in which the block has elements; 0 in a scalar.
  std::int64_t begin_row() const { return offset.empty() ? 0 : offset.front(); }
  /// One past the last row in which the block has elements; 1 in a scalar.
  std::int64_t end_row() const { return extent.empty() ? 1 : offset.front() + extent.front(); }
  /// Number of elements. Throws Error on overflow or a negative extent.
  std::int64_t elements() const;
  /// Equal in both fields.
  bool operator==(const Block&) const = default;
};

/// Rows [begin, end) of a tensor. A scalar has one row; Error is thrown if the rows are not [0, 1).
Block rows_block(const TensorMeta& meta, std::int64_t begin, std::int64_t end);
/// The whole tensor.
Block whole_block(const TensorMeta& meta);
/// Whether the block has all elements of its rows, so that it is contiguous in the tensor.
bool is_whole_rows(const TensorMeta& meta, const Block& block);
/// Throws Error `what: ...` unless the block has the tensor's number of dimensions and at least one element, and is
/// inside the tensor.
void check_block(const TensorMeta& meta, const Block& block, const std::string& what);

}  // namespace fp8::ckpt
