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

// Pairs of a token and one up to itself, of n tokens.
std::int64_t pairs_of(std::int64_t n) { return n * (n + 1) / 2; }

}  // namespace

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

void check_length(const TokenFile& tokens, std::int64_t length) {
  const std::optional<std::int64_t>& packed = tokens.info().sequence_length;
  if (!packed || *packed == length) return;
  throw Error("sequence length " + std::to_string(length) + ", but " + tokens.path() + " holds packed sequences of " +
                  std::to_string(*packed) + " tokens",
              {{"seq-length", std::to_string(*packed)}});
}

Sampler::Sampler(const TokenFile& tokens, SamplerKind kind, std::uint64_t seed, std::int64_t sequence_length,
                 std::int64_t global_batch, DocumentMode documents)
    : tokens_(&tokens), kind_(kind), seed_(seed), sequence_length_(sequence_length), global_batch_(global_batch) {
  if (sequence_length < 1) throw Error("sequence length: must be positive");
  if (global_batch < 1) throw Error("global batch: must be positive");
  checked_mul(sequence_length, global_batch, "tokens in a step");
  const TokenInfo& info = tokens.info();
  const std::int64_t n = info.tokens;
  check_length(tokens, sequence_length);
  const bool separate = documents == DocumentMode::separate ||
                        (documents == DocumentMode::automatic && (info.mask || info.sequence_length));
  if (separate) {
    offsets_ = tokens.documents();
    info.sequence_length ? separate_packed() : separate_single();
    return;
  }
  if (info.sequence_length) {
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

// Samples are packed sequences. A document that crosses the end of one, which no tool of this suite writes, is a
// document in each.
void Sampler::separate_packed() {
  const std::int64_t t = sequence_length_;
  samples_ = tokens_->info().tokens / t;
  std::int64_t count = 0;  // documents of the sequence so far
  for (std::size_t i = 0; i + 1 < offsets_.size(); ++i) {
    for (std::int64_t begin = offsets_[i]; begin < offsets_[i + 1];) {
      const std::int64_t end = std::min(offsets_[i + 1], (begin / t + 1) * t);
      count = begin % t == 0 ? 1 : count + 1;
      most_documents_ = std::max(most_documents_, count);
      longest_ = std::max(longest_, end - begin);
      begin = end;
    }
  }
}

// Samples are documents. The last token of a document that is one token longer than a sample is only a target.
void Sampler::separate_single() {
  const std::int64_t t = sequence_length_;
  std::vector<std::int64_t> first;
  most_documents_ = 1;
  for (std::size_t i = 0; i + 1 < offsets_.size(); ++i) {
    const std::int64_t n = offsets_[i + 1] - offsets_[i], samples = n < 2 ? 1 : (n - 2) / t + 1;
    const std::int64_t last = std::min(t, n - (samples - 1) * t), rest = t - last;  // tokens, padding of the last one
    first.push_back(samples_);
    samples_ += samples;
    split_ += samples > 1 ? 1 : 0;
    padding_ += rest;
    if (rest > 0) most_documents_ = 2;
    longest_ = std::max({longest_, samples > 1 ? t : last, rest});
  }
  if (split_ > 0) first_sample_ = std::move(first);
}

std::int64_t Sampler::sample_index(std::int64_t step, std::int64_t position) const {
  if (step < start_.step || position < 0 || position >= global_batch_) throw Error("sampler: position out of range");
  const std::int64_t first = checked_add(start_.sample, checked_mul(step - start_.step, global_batch_, "step"), "step");
  const std::int64_t at = checked_add(first, position, "step");
  const auto n = static_cast<std::uint64_t>(samples_);
  const std::uint64_t epoch = static_cast<std::uint64_t>(at) / n;
  const std::uint64_t index = static_cast<std::uint64_t>(at) % n;
  if (kind_ == SamplerKind::sequential) return static_cast<std::int64_t>(index);
  return static_cast<std::int64_t>(permute(index, n, mix(mix(seed_) ^ epoch)));
}

Sampler::Range Sampler::range_of(std::int64_t sample) const {
  const std::int64_t t = sequence_length_;
  if (tokens_->info().sequence_length) return {sample * t, t};
  std::int64_t document = sample, piece = 0;
  if (!first_sample_.empty()) {
    document = std::upper_bound(first_sample_.begin(), first_sample_.end(), sample) - first_sample_.begin() - 1;
    piece = sample - first_sample_[static_cast<std::size_t>(document)];
  }
  const std::int64_t first = offsets_[static_cast<std::size_t>(document)] + piece * t;
  return {first, std::min(t, offsets_[static_cast<std::size_t>(document) + 1] - first)};
}

// Excludes targets, which are the tokens from `first` on, by the file's mask.
void Sampler::mask_targets(std::int64_t first, std::span<std::int32_t> targets) const {
  if (!tokens_->info().mask) return;
  std::array<std::uint8_t, 4096> counts{};
  for (std::size_t i = 0; i < targets.size(); i += counts.size()) {
    const auto piece = std::span(counts).first(std::min(counts.size(), targets.size() - i));
    tokens_->read_mask(first + static_cast<std::int64_t>(i), piece);
    for (std::size_t j = 0; j < piece.size(); ++j)
      if (piece[j] == 0) targets[i + j] = kIgnoredTarget;
  }
}

std::int64_t Sampler::read_separate(std::int64_t sample, std::span<std::int32_t> inputs,
                                    std::span<std::int32_t> targets, std::span<std::int32_t> starts) const {
  const auto [first, count] = range_of(sample);
  const auto used = static_cast<std::size_t>(count);
  const std::int64_t end = first + count;
  tokens_->read(first, inputs.first(used));
  std::fill(inputs.begin() + count, inputs.end(), 0);
  const auto following = static_cast<std::size_t>(std::min(count, tokens_->info().tokens - first - 1));
  std::fill(targets.begin(), targets.end(), kIgnoredTarget);
  tokens_->read(first + 1, targets.first(following));
  mask_targets(first + 1, targets.first(following));
  if (tokens_->info().sequence_length) targets.back() = kIgnoredTarget;  // nothing follows a packed sequence
  std::int64_t pairs = pairs_of(sequence_length_ - count);
  auto next = std::upper_bound(offsets_.begin(), offsets_.end(), first);  // end of the first document
  for (std::int64_t begin = first; begin < end; ++next) {
    const std::int64_t stop = std::min(end, *next);
    if (stop == *next) targets[static_cast<std::size_t>(stop - first - 1)] = kIgnoredTarget;
    if (!starts.empty())
      std::fill(starts.begin() + (begin - first), starts.begin() + (stop - first),
                static_cast<std::int32_t>(begin - first));
    pairs += pairs_of(stop - begin);
    begin = stop;
  }
  if (!starts.empty()) std::fill(starts.begin() + count, starts.end(), static_cast<std::int32_t>(count));
  return pairs;
}

std::int64_t Sampler::sample(std::int64_t sample, std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
                             std::span<std::int32_t> starts) const {
  if (sample < 0 || sample >= samples_) throw Error("sampler: no sample " + std::to_string(sample));
  if (std::cmp_not_equal(inputs.size(), sequence_length_) || targets.size() != inputs.size() ||
      (!starts.empty() && (!separate() || starts.size() != inputs.size()))) {
    throw Error("sampler: buffers of the wrong size");
  }
  if (separate()) return read_separate(sample, inputs, targets, starts);
  const std::int64_t first = sample * sequence_length_;
  tokens_->read(first, inputs);
  if (tokens_->info().sequence_length) {  // nothing follows a packed sequence
    targets.back() = kIgnoredTarget;
    targets = targets.first(targets.size() - 1);
  }
  tokens_->read(first + 1, targets);
  mask_targets(first + 1, targets);
  return pairs_of(sequence_length_);
}

std::int64_t Sampler::batch(std::int64_t step, std::int64_t first, std::int64_t count, std::span<std::int32_t> inputs,
                            std::span<std::int32_t> targets, std::span<std::int32_t> starts) const {
  if (first < 0 || count < 0 || first > global_batch_ || count > global_batch_ - first) {
    throw Error("sampler: position out of range");
  }
  if (std::cmp_not_equal(inputs.size(), count * sequence_length_) || targets.size() != inputs.size() ||
      (!starts.empty() && starts.size() != inputs.size())) {
    throw Error("sampler: buffers of the wrong size");
  }
  const auto row = static_cast<std::size_t>(sequence_length_);
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * row;
    pairs += sample(sample_index(step, first + i), inputs.subspan(at, row), targets.subspan(at, row),
                    starts.empty() ? starts : starts.subspan(at, row));
  }
  return pairs;
}

}  // namespace fp8::data
