// Series of tensors without repetition. Private to the crate.
#pragma once

#include <string>
#include <vector>

#include "fp8/log/tensors.h"

namespace fp8::log {

// A cast, or a product.
struct CastSeries {
  const TensorSeries* series = nullptr;  // the first that has it
  std::string gemms{};                   // the GEMMs that read it, separated by commas
};

// All casts and products of a run, in order of appearance. GEMMs of a linear whose operands have the same figures at
// every step read the same cast.
std::vector<CastSeries> casts_of(const TensorRun& run);

// What is added to a message that a plot has nothing to show.
std::string reason_of(const TensorRun& run);

// Throws Error if an inspection has several recipes, which no plot shows together.
void check_one_recipe(const TensorRun& run);

}  // namespace fp8::log
