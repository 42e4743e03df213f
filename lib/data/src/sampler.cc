// Samples by number, and the keyed permutation for shuffling.
#include "fp8/data/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"

namespace fp8::data {
namespace {

constexpr int kRounds = 16;

// A bijection of 64-bit words whose output bits all depend on all input bits. Source: the finalizer of SplitMix64
// (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

}  // namespace

std::optional<SamplerKind> parse_sampler(std::string_view name) {
  if (name == "sequential") return SamplerKind::sequential;
  if (name == "shuffle") return SamplerKind::shuffle;
  return std::nullopt;
}

std::uint64_t permute(std::uint64_t index, std::uint64_t n, std::uint64_t key) {
  if (index >= n) throw Error("permutation: index beyond its size");
  if (n == 1) return 0;
  const auto half = static_cast<unsigned>((std::bit_width(n - 1) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  std::array<std::uint64_t, kRounds> keys{};
  for (std::uint64_t& k : keys) k = key = mix(key);
  do {
    std::uint64_t left = index >> half;
    std::uint64_t right = index & mask;
    for (const std::uint64_t k : keys) {
      const std::uint64_t next = left ^ (mix(right ^ k) & mask);
      left = right;
      right = next;
    }
    index = (left << half) | right;
  } while (index >= n);
  return index;
}

Sampler::Sampler(const TokenFile& tokens, SamplerKind kind, std::uint64_t seed, std::int64_t sequence_length,
                 std::int64_t global_batch)
    : tokens_(&tokens), kind_(kind), seed_(seed), sequence_length_(sequence_length), global_batch_(global_batch) {
  if (sequence_length < 1) throw Error("sequence length: must be positive");
  if (global_batch < 1) throw Error("global batch: must be positive");
  checked_mul(sequence_length, global_batch, "tokens in a step");
  const std::int64_t n = tokens.info().tokens;
  if (const std::optional<std::int64_t> packed = tokens.info().sequence_length) {
    if (sequence_length != *packed) {
      throw Error("sequence length " + std::to_string(sequence_length) + ", but " + tokens.path() +
                      " holds packed sequences of " + std::to_string(*packed) + " tokens",
                  {{"seq-length", std::to_string(*packed)}});
    }
    samples_ = n / sequence_length;
    return;
  }
  if (n - 1 < sequence_length) {
    throw Error(tokens.path() + ": " + std::to_string(n) + " tokens are too few for sequences of " +
                std::to_string(sequence_length) + " tokens, which need at least " +
                std::to_string(checked_add(sequence_length, std::int64_t{1}, "sequence length")));
  }
  samples_ = (n - 1) / sequence_length;
}

std::int64_t Sampler::sample_index(std::int64_t step, std::int64_t position) const {
  if (step < 0 || position < 0 || position >= global_batch_) throw Error("sampler: position out of range");
  const std::int64_t at = checked_add(checked_mul(step, global_batch_, "step"), position, "step");
  const auto n = static_cast<std::uint64_t>(samples_);
  const std::uint64_t epoch = static_cast<std::uint64_t>(at) / n;
  const std::uint64_t index = static_cast<std::uint64_t>(at) % n;
  if (kind_ == SamplerKind::sequential) return static_cast<std::int64_t>(index);
  return static_cast<std::int64_t>(permute(index, n, mix(mix(seed_) ^ epoch)));
}

void Sampler::sample(std::int64_t sample, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const {
  if (sample < 0 || sample >= samples_) throw Error("sampler: no sample " + std::to_string(sample));
  if (std::cmp_not_equal(inputs.size(), sequence_length_) || targets.size() != inputs.size()) {
    throw Error("sampler: buffers of the wrong size");
  }
  const std::int64_t first = sample * sequence_length_;
  tokens_->read(first, inputs);
  if (tokens_->info().sequence_length) {  // nothing follows a packed sequence
    targets.back() = kIgnoredTarget;
    targets = targets.first(targets.size() - 1);
  }
  tokens_->read(first + 1, targets);
  if (!tokens_->info().mask) return;
  std::array<std::uint8_t, 4096> counts{};
  for (std::size_t i = 0; i < targets.size(); i += counts.size()) {
    const auto piece = std::span(counts).first(std::min(counts.size(), targets.size() - i));
    tokens_->read_mask(first + 1 + static_cast<std::int64_t>(i), piece);
    for (std::size_t j = 0; j < piece.size(); ++j)
      if (piece[j] == 0) targets[i + j] = kIgnoredTarget;
  }
}

void Sampler::batch(std::int64_t step, std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
                    std::span<std::int32_t> targets) const {
  if (first < 0 || count < 0 || first > global_batch_ || count > global_batch_ - first) {
    throw Error("sampler: position out of range");
  }
  if (std::cmp_not_equal(inputs.size(), count * sequence_length_) || targets.size() != inputs.size()) {
    throw Error("sampler: buffers of the wrong size");
  }
  const auto row = static_cast<std::size_t>(sequence_length_);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * row;
    sample(sample_index(step, first + i), inputs.subspan(at, row), targets.subspan(at, row));
  }
}

}  // namespace fp8::data
