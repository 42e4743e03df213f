/// The sequences that a step trains on. Sequence j of length T reads tokens [jT, jT+T); its targets are shifted by one.
/// In a file of packed sequences, the target of the last token of each is masked. A sampler's output is a
/// function of (kind, seed, step, position) alone: it has no state to save, and does not depend on how the step's
/// sequences are split over ranks and micro-batches. Source: numerics of this suite, fp8-step(1), --sampler.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "fp8/base/target.h"
#include "fp8/data/tokens.h"

namespace fp8::data {

/// Order of the sequences.
enum class SamplerKind : std::uint8_t {
  sequential,  ///< position p of the run is sequence p mod samples()
  shuffle,     ///< a permutation of the sequences for each epoch, keyed by (seed, epoch)
};

/// Kind by name (sequential, shuffle); empty for an unknown one.
std::optional<SamplerKind> parse_sampler(std::string_view name);

/// A permutation of [0, n) keyed by `key`, evaluated at `index` < n: a Feistel network of 16 rounds on the smallest
/// even number of bits that covers n, repeated until the result is below n. O(1) memory, a few repetitions on average.
std::uint64_t permute(std::uint64_t index, std::uint64_t n, std::uint64_t key);

/// Sequences of one token file, which must outlive this.
class Sampler {
 public:
  /// `sequence_length` T in tokens and `global_batch` G in sequences per step, both positive. Throws Error with both
  /// numbers when the file has fewer than T + 1 tokens, or packed sequences of another length.
  Sampler(const TokenFile& tokens, SamplerKind kind, std::uint64_t seed, std::int64_t sequence_length,
          std::int64_t global_batch);

  /// Sequences in the file, floor((tokens - 1) / T), or tokens / T of packed sequences: one epoch.
  std::int64_t samples() const { return samples_; }
  /// Tokens per step: G x T.
  std::int64_t tokens_per_step() const { return global_batch_ * sequence_length_; }
  /// The index of the sequence at `position` in [0, G) of `step` (from 0).
  std::int64_t sample_index(std::int64_t step, std::int64_t position) const;
  /// Sequences at positions [first, first + count) of `step`: inputs and targets are [count, T], row-major. A target
  /// masked in the file is kIgnoredTarget.
  void batch(std::int64_t step, std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
             std::span<std::int32_t> targets) const;
  /// Tokens [sample x T, sample x T + T) and the targets shifted by one, by the index of the sequence; for evaluation
  /// in file order.
  void sample(std::int64_t sample, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const;

 private:
  const TokenFile* tokens_;
  SamplerKind kind_;
  std::uint64_t seed_;
  std::int64_t sequence_length_;
  std::int64_t global_batch_;
  std::int64_t samples_;
};

}  // namespace fp8::data
