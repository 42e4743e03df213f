/// Dropout with counter-based random numbers: whether an element is left out is a function of the run's seed, a stream
/// and the element's position in the global batch, so it depends neither on ranks nor on recomputation.
#pragma once

#include <cstdint>

#include "fp8/tensor/tensor.h"

namespace fp8::ops {

using device::Context;
using tensor::View;

/// The choice of the elements that are left out.
struct Dropout {
  float probability = 0;          ///< probability of leaving out an element, below 1; 0 leaves out none
  std::uint64_t seed = 0;         ///< seed of the run
  std::uint64_t stream = 0;       ///< different for each step and tensor
  std::int64_t first_row = 0;     ///< number in the global batch of row 0 of the matrix
  std::int64_t first_column = 0;  ///< column 0 of the matrix in a matrix of `columns` columns of which it is a part
  std::int64_t columns = 0;       ///< 0: the matrix is whole
};

/// out [M, K] = x / (1 - probability), 0 where left out; f32 or bf16, rounded once. out may be x. Every matrix
/// of as many columns loses the same elements. Source: torch.nn.functional.dropout.
void dropout(const Context& ctx, const View& x, const Dropout& dropout, const View& out);

}  // namespace fp8::ops
