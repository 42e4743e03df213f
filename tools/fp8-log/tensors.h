/// Statistics of FP8 tensors: the tables of fp8-log --tensors.
#pragma once

#include <string>

#include "cells.h"
#include "fp8/log/tensors.h"

namespace fp8::report {

/// The lowest SQNR, most underflow, most saturation, and the products with the largest errors: for each a table with at
/// most `top` rows, or a line if there are none. Then the largest loads of experts, and the layers in which most tokens
/// get other experts, if there are records of them.
std::string tensors(const log::TensorRun& run, std::size_t top, Page page);

}  // namespace fp8::report
