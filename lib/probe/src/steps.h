/// Whole optimizer steps, timed.
#pragma once

#include "fp8/probe/bench.h"

namespace fp8::probe {

/// Sequences and their length that make `tokens` tokens, or a little less, in what the model was made for.
struct Batch {
  std::int64_t sequences = 1, length = 1;
};
Batch batch_of(const hf::Config& model, std::int64_t tokens);

/// Trains a fresh model on random tokens for options.steps steps, in bf16 and in FP8, as fp8-step does, in a folder for
/// temporary files that is gone afterwards, and fills the steps of `result`. Throws what a run throws.
void time_steps(const BenchOptions& options, BenchResult& result);

}  // namespace fp8::probe
