// Numbers of elements, for random numbers. Private to the crate.
#pragma once

#include <cstdint>

#include "fp8/model/parameters.h"

namespace fp8::shard {

// A number that differs between the elements of a parameter, for the first element of a row of its block: the element's
// index in the whole, if whole rows are divided over ranks.
inline std::int64_t element_of(const model::Parameter& p, std::int64_t row) {
  if (p.first_col() == 0) return (p.first_row() + row) * p.cols();
  return p.rows() * p.first_col() + row * p.cols();
}

}  // namespace fp8::shard
