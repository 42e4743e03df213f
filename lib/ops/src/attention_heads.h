/// The views of an attention call as arguments of kernels. Private to this crate.
#pragma once

#include <cstdint>

#include "fp8/dtype/element.h"
#include "fp8/tensor/tensor.h"

namespace fp8::ops {

/// Rows of one head.
template <class T>
struct HeadRows {
  T* data;                 ///< position 0
  std::int64_t stride;     ///< elements between positions
  std::int64_t positions;  ///< rows
  int dim;                 ///< elements of a row
  bool packed;             ///< groups of 8 elements are aligned and whole
  /// Row of position t.
  FP8_HD T* at(std::int64_t t) const { return data + t * stride; }
};

/// All heads of a view [B, T, heads, D].
template <class T>
struct Heads {
  T* data;                                    ///< first element
  std::int64_t sequence, position, head;      ///< strides
  std::int64_t batch, positions, count, dim;  ///< extents
  bool packed;                                ///< groups of 8 elements are aligned and whole

  /// Takes a view with unit last stride; `aligned` says that all rows begin at multiples of 16 bytes.
  Heads(const tensor::View& v, bool aligned)
      : data(v.as<T>()),
        sequence(v.stride[0]),
        position(v.stride[1]),
        head(v.stride[2]),
        batch(v.shape[0]),
        positions(v.shape[1]),
        count(v.shape[2]),
        dim(v.shape[3]),
        packed(aligned && v.shape[3] % 8 == 0) {}
  /// Head h of sequence b.
  FP8_HD HeadRows<T> of(std::int64_t b, std::int64_t h) const {
    return {data + b * sequence + h * head, position, positions, static_cast<int>(dim), packed};
  }
};

}  // namespace fp8::ops
