/// Choice of the next token from logits. Random numbers are counter-based: a choice depends on the seed, the number of
/// the prompt and the number of the token alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fp8::generate {

/// How tokens are drawn.
struct Sampling {
  double temperature = 1;  ///< logits are divided by it; 0: the token of the largest logit, always
  std::int64_t top_k = 0;  ///< only the k most probable tokens; 0: all
  double top_p = 1;        ///< only the most probable tokens whose probabilities reach this sum; in (0, 1]
  std::uint64_t seed = 0;  ///< any number
};

/// Chooses tokens. Keeps buffers between calls; not thread-safe.
class Sampler {
 public:
  /// Temperature and top_p must be in range.
  explicit Sampler(const Sampling& sampling) : sampling_(sampling) {}

  /// The id of the token `index` of prompt `prompt`. Among equal logits the lower id comes first. With top_k and top_p,
  /// k applies first, and both see probabilities after the temperature. Throws Error if a logit is NaN or infinite.
  std::uint32_t choose(std::span<const float> logits, std::uint64_t prompt, std::uint64_t index);

 private:
  struct Candidate {
    std::uint32_t id;
    double weight;  // relative probability
  };
  Sampling sampling_;
  std::vector<Candidate> candidates_;
};

}  // namespace fp8::generate
