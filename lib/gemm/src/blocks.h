/// Inverse scales of blocks on the host. Private to this crate.
#pragma once

#include <cstdint>

#include "fp8/gemm/gemm.h"

namespace fp8::gemm {

/// One operand with scales for blocks, on the host.
struct BlockScales {
  /// Reads the scales of A, or of B with `columns`; they have been validated.
  BlockScales(const Operand& o, bool columns);
  tensor::View codes;          ///< [outer, K] BF16, one of the strides is 1
  tensor::View scales;         ///< [ceil(outer / across), ceil(K / along)] f32
  std::int64_t along, across;  ///< elements of a block along K and along the outer dimension

  /// The inverse scale of element (outer, k).
  float at(std::int64_t outer, std::int64_t k) const {
    return static_cast<const float*>(scales.data)[outer / across * scales.stride[0] + k / along * scales.stride[1]];
  }
};

/// Extents of the blocks of a kind along K and along the outer dimension; not for ScaleBlocks::none.
struct BlockSides {
  std::int64_t along, across;  ///< elements
};
/// See BlockSides.
BlockSides sides_of(ScaleBlocks blocks);

/// Codes times inverse scales in f32, each rounded once.
///   to  [outer, K] f32, with the unit stride of the codes
void dequantize(const BlockScales& from, const tensor::View& to);

}  // namespace fp8::gemm
