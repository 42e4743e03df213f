/// Times whole optimizer steps.
#pragma once

#include "fp8/probe/bench.h"

namespace fp8::probe {

/// Number and length of the sequences of a batch.
struct Batch {
  std::int64_t sequences = 1, length = 1;
};
/// A batch of about `tokens` tokens, whose sequences have at most 1024 tokens and fit the context and the window of the
/// model.
Batch batch_of(const hf::ModelConfig& model, std::int64_t tokens);

/// Writes a token file of `count` random tokens below `vocabulary`. Throws Error when it cannot be written.
void write_random_tokens(const std::string& path, std::int64_t vocabulary, std::int64_t count);

/// Trains a fresh model on random tokens for options.steps steps, in bf16 and in FP8, as fp8-step does, in a temporary
/// folder, and sets the steps of `result`. Throws as train::run().
void time_steps(const BenchOptions& options, BenchResult& result);

}  // namespace fp8::probe
