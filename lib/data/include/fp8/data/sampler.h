/// The tokens that a step trains on. The target of a token is the next token. With joined documents, sample j of
/// sequence length T reads tokens [jT, jT+T) of the file, whatever documents they belong to. With separate documents a
/// sample is a packed sequence of the file, or one document or a piece of T tokens of it, followed by padding; the last
/// token of a document has no target, so the first token of the next one is no target. A sampler's output is a function
/// of (kind, seed, step, position) alone: it has no state to save, and does not depend on how the step's samples are
/// split over ranks and micro-batches. Source: numerics of this suite, fp8-step(1), --sampler and --documents.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fp8/base/target.h"
#include "fp8/data/tokens.h"

namespace fp8::data {

/// Order of the sequences.
enum class SamplerKind : std::uint8_t {
  sequential,  ///< position p of the run is sequence p mod samples()
  shuffle,     ///< a permutation of the sequences for each epoch, keyed by (seed, epoch)
};

/// How samples treat the documents of a file.
enum class DocumentMode : std::uint8_t {
  automatic,  ///< separate if the file has a mask or packed sequences, else joined
  joined,     ///< samples cross the bounds of documents
  separate,   ///< documents of a sample do not see each other
};

/// Upper bounds of the documents in any samples. Padding counts as a document.
struct DocumentBounds {
  std::int64_t count = 0;    ///< number of documents in all samples
  std::int64_t longest = 0;  ///< number of tokens of a document
};

/// A permutation of [0, n) keyed by `key`, evaluated at `index` < n: a Feistel network of 16 rounds on the smallest
/// even number of bits that covers n, repeated until the result is below n. O(1) memory, a few repetitions on average.
std::uint64_t permute(std::uint64_t index, std::uint64_t n, std::uint64_t key);

/// Throws Error with both numbers if the file has packed sequences of another length than `length`.
void check_length(const TokenFile& tokens, std::int64_t length);

/// A step and the position in the run's sequence of samples at which it begins. A run whose batch or data changed has
/// another one than (0, 0).
struct SamplerStart {
  std::int64_t step = 0;    ///< number of the step, from 0
  std::int64_t sample = 0;  ///< position of its first sample: epoch x samples + place in the epoch
};

/// Samples of one token file, which must outlive this. With separate documents the bounds of all documents are kept in
/// memory, 8 bytes each.
class Sampler {
 public:
  /// `sequence_length` T in tokens and `global_batch` G in samples per step, both positive. Throws Error with both
  /// numbers when the file has packed sequences of another length, or documents are joined and it has fewer than T + 1
  /// tokens.
  Sampler(const TokenFile& tokens, SamplerKind kind, std::uint64_t seed, std::int64_t sequence_length,
          std::int64_t global_batch, DocumentMode documents);
  /// Steps begin at `start`; earlier ones have no samples.
  void begin_at(SamplerStart start) { start_ = start; }

  /// Samples in the file, one epoch: floor((tokens - 1) / T) of joined documents, tokens / T of packed sequences, or
  /// for each separate document max(1, ceil((its tokens - 1) / T)).
  std::int64_t samples() const { return samples_; }
  /// Tokens of a sample: T.
  std::int64_t tokens_per_sample() const { return sequence_length_; }
  /// Tokens per step: G x T.
  std::int64_t tokens_per_step() const { return global_batch_ * sequence_length_; }
  /// Whether documents are separate.
  bool separate() const { return !offsets_.empty(); }
  /// Bounds for any `count` samples; 0 if documents are joined.
  DocumentBounds bounds(std::int64_t count) const { return {count * most_documents_, longest_}; }
  /// Number of documents that are longer than a sample and were split; 0 if documents are joined.
  std::int64_t split_documents() const { return split_; }
  /// Tokens of padding that were added in one epoch; 0 if documents are joined or packed.
  std::int64_t padding() const { return padding_; }
  /// Tokens of a sample before the padding that the sampler adds: T unless documents are separate.
  std::int64_t length_of(std::int64_t sample) const { return separate() ? range_of(sample).count : sequence_length_; }
  /// The sample at `position` in [0, G) of `step` (from 0).
  std::int64_t sample_index(std::int64_t step, std::int64_t position) const;
  /// Samples at positions [first, first + count) of `step`: inputs and targets are [count, T], row-major. A target
  /// masked in the file is kIgnoredTarget. `starts` [count, T]: for each position of a sample, the first
  /// position of its document in the sample; empty if documents are joined. Returns the number of pairs of a position
  /// and one that it attends to: those of its document up to itself.
  std::int64_t batch(std::int64_t step, std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
                     std::span<std::int32_t> targets, std::span<std::int32_t> starts = {}) const;
  /// Fills the buffers like batch() with one sample, given by its number, for evaluation in file order.
  std::int64_t sample(std::int64_t sample, std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
                      std::span<std::int32_t> starts = {}) const;

 private:
  // Tokens of the file.
  struct Range {
    std::int64_t first, count;
  };
  void separate_packed();
  void separate_single();
  Range range_of(std::int64_t sample) const;
  std::int64_t read_separate(std::int64_t sample, std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
                             std::span<std::int32_t> starts) const;
  void mask_targets(std::int64_t first, std::span<std::int32_t> targets) const;

  const TokenFile* tokens_;
  SamplerKind kind_;
  std::uint64_t seed_;
  std::int64_t sequence_length_;
  std::int64_t global_batch_;
  SamplerStart start_;
  std::int64_t samples_ = 0;
  // The members below have values if documents are separate.
  std::vector<std::int64_t> offsets_;  // first tokens of the documents, then the number of tokens
  std::vector<std::int64_t>
      first_sample_;  // first sample of each document; empty if a sample is a document or a packed sequence
  std::int64_t most_documents_ = 0;  // most documents of a sample, padding included
  std::int64_t longest_ = 0, split_ = 0, padding_ = 0;
};

}  // namespace fp8::data
