/// Figures of the difference between two lists of log-probabilities of the same tokens, computed token by token.
///   q  log-probability in a rollout        p  log-probability of a candidate
///   d = q - p in nats                      r = exp(d), the ratio of probabilities
/// k1 = mean d and k3 = mean (exp(-d) - 1 + d) estimate KL(q || p) from tokens that q drew; the reverse of k3 is
/// mean (r - 1 - d). Source: J. Schulman, Approximating KL divergence (2020).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::judge {

/// exp(-d) - 1 + d, without loss of digits near 0.
double k3_of(double d);

/// A mean over tokens with its 95 % interval over sequences.
struct Mean {
  double value = 0;
  double low = 0, high = 0;  ///< equal to the value where there is one sequence
};

/// Sums of one sequence.
struct SequenceSums {
  double tokens = 0;  ///< judged tokens
  double sum = 0;     ///< of the figure over them
};

/// The mean of a figure over tokens, and its interval of level `level` by Student's t for a ratio of sums of
/// independent sequences.
Mean mean_over(const std::vector<SequenceSums>& sequences, double level = 0.95);

/// Adds a token of sequence `sequence` to sums by sequence.
void add_to(std::vector<SequenceSums>& sequences, std::int64_t sequence, double value);

/// A |d| that rounding does not reach, in nats.
inline constexpr double kLarge = 0.1;

/// A judged token.
struct Token {
  std::int64_t sequence = 0;  ///< number of the rollout, from 0
  std::int64_t position = 0;  ///< position in it, from 0
  std::int32_t id = 0;        ///< its id
  double q = 0, p = 0;        ///< log-probabilities
  double d() const { return q - p; }
};

/// A part of the tokens.
struct Bin {
  double from = 0, to = 0;  ///< of the position or the probability: from <= x < to
  std::int64_t tokens = 0;  ///< number of tokens
  double k3 = 0, abs = 0;   ///< sums
};

/// Figures of one candidate. Adding the tokens in the same order gives the same bits.
class Figures {
 public:
  /// Keeps the `worst` tokens with the largest |d|.
  explicit Figures(std::int64_t worst = 1);
  /// Adds a token. Tokens of a sequence follow each other.
  void add(const Token& token);

  std::int64_t tokens() const { return tokens_; }
  double k1() const { return of(sum_d_); }
  double k3() const { return of(sum_k3_); }
  double k3_reverse() const { return of(sum_reverse_); }
  double mean_abs() const { return of(sum_abs_); }
  /// mean exp|d|, token_mult_prob_error of NeMo-RL.
  double mult_prob_error() const { return of(sum_mult_); }
  /// mean exp(-d), the mean importance weight of the candidate over the rollouts, rollout_is_mean of verl.
  double weight_mean() const { return of(sum_weight_); }
  /// Share of tokens whose ratio is below 0.5 or above 2.
  double outside() const { return of(static_cast<double>(outside_)); }
  /// The quantile of the ratio r for `share` of the tokens, from a histogram of d with 32 bins for each power of two.
  double ratio_quantile(double share) const;
  /// The tokens with the largest |d|, that first.
  const std::vector<Token>& worst() const { return worst_; }
  /// The first token with |d| above kLarge; nothing: there is none.
  const std::optional<Token>& first_large() const { return first_large_; }
  /// Sums of k3 by sequence.
  const std::vector<SequenceSums>& sequences() const { return sequences_; }
  /// Bins by position, for powers of two, and by the probability in the rollouts.
  const std::vector<Bin>& by_position() const { return positions_; }
  const std::vector<Bin>& by_probability() const { return probabilities_; }

  /// The members of a record: tokens, k1, k3, k3_interval, k3_reverse, mean_abs, max_abs with its place,
  /// mult_prob_error, ratio quantiles, outside, bins.
  void write(json::Object& record) const;

 private:
  double of(double sum) const { return tokens_ > 0 ? sum / static_cast<double>(tokens_) : 0; }
  void keep_if_worst(const Token& token);

  std::size_t most_worst_;
  std::int64_t tokens_ = 0, outside_ = 0;
  double sum_d_ = 0, sum_k3_ = 0, sum_reverse_ = 0, sum_abs_ = 0, sum_mult_ = 0, sum_weight_ = 0;
  std::vector<SequenceSums> sequences_;
  std::vector<Token> worst_;
  std::optional<Token> first_large_;
  std::vector<Bin> positions_, probabilities_;
  std::vector<std::int64_t> histogram_;  // of d, from the lowest
};

}  // namespace fp8::judge
