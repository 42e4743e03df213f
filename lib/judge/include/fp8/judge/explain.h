/// What explains the log-probabilities of rollouts: a candidate, a temperature, a shift by one token, another
/// beginning. An explanation other than a plain candidate must be better than that by more than chance.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8/judge/figures.h"
#include "fp8/judge/logits.h"

namespace fp8::judge {

/// A mean k3 above which nothing is explained, unless the share kExplainedShare of what bf16 leaves is larger.
inline constexpr double kExplained = 1e-4;
/// The share of bf16's k3 at which another explanation is accepted.
inline constexpr double kExplainedShare = 0.05;

/// Tokens with their grids, from which a temperature is fitted: the first of all rollouts, in whole sequences.
class TemperatureFit {
 public:
  /// A token with log-probability `token.q` in the rollouts, of which the record states `stated` as the inverse
  /// temperature, 1 if it states none.
  void add(const Token& token, const TokenGrid& grid, double stated);

  /// The best temperature.
  struct Result {
    double temperature = 1;                 ///< by which logits were divided, relative to that of the records
    double k3 = 0;                          ///< mean over all tokens at this temperature
    double k3_held_out = 0, k3_at_one = 0;  ///< means over the held-out half at this temperature and at 1
    bool beats_one = false;  ///< at this temperature k3 of the held-out half is at most half as large, beyond chance
    std::vector<SequenceSums> sequences{};  ///< sums of k3 at this temperature by sequence
  };
  /// Fits on one half of the sequences and tests on the other; with fewer than 32 sequences the halves consist of runs
  /// of 32 tokens. `tests` is the number of candidates that are tested, for the level of the test. Nothing without
  /// tokens in both halves.
  std::optional<Result> fit(std::int64_t tests) const;

 private:
  struct Entry {
    Token token;
    TokenGrid grid;
    double stated;
  };
  double k3_at(const Entry& e, double inverse) const;
  double mean_k3(double inverse) const;
  std::int64_t unit_of(std::size_t i) const;
  bool held_out(std::size_t i) const { return unit_of(i) % 2 == 1; }
  std::vector<Entry> entries_;
};

/// Sums of k3 between the log-probability of each token and that of a candidate for its neighbour.
struct Shifted {
  std::vector<SequenceSums> behind{};  ///< of the token before: log-probabilities arrive one position late
  std::vector<SequenceSums> ahead{};   ///< of the token after: log-probabilities arrive one position early
};

/// Everything about one candidate.
struct Candidate {
  std::string checkpoint{};       ///< path
  bool other_checkpoint = false;  ///< whether it is one of --also
  std::string precision{};        ///< fp32, bf16, fp8
  std::string recipe{};           ///< with fp8: its name
  Figures figures{};              ///< of all judged tokens
  Shifted shifted{};              ///< of all judged tokens
  std::optional<TemperatureFit::Result> temperature{};

  /// The recipe, or the precision without one.
  const std::string& name() const { return recipe.empty() ? precision : recipe; }
};

/// What an explanation changes in a candidate.
enum class Change : std::uint8_t { none, temperature, behind, ahead, without_first, with_bos };

/// A candidate with the change that explains best.
struct Explanation {
  std::size_t candidate = 0;              ///< index
  Change change = Change::none;           ///< what is changed
  double temperature = 1;                 ///< with Change::temperature
  double k3 = 0;                          ///< mean that it leaves
  std::vector<SequenceSums> sequences{};  ///< sums of k3
};

/// The best explanation among the candidates and `more` of them: the least k3, where a change of a candidate counts
/// only if it leaves at most half of the k3 of that candidate.
Explanation best_of(const std::vector<Candidate>& candidates, const std::vector<Explanation>& more);

/// The answer.
struct Verdict {
  bool explained = false;
  Explanation best{};
  std::vector<std::size_t> equal{};  ///< other candidates that, with the same change, are not worse beyond chance
  std::string text{};                ///< one sentence
};

/// The candidate in bf16 of MODEL; null if there is none.
const Candidate* plain_bf16(const std::vector<Candidate>& candidates);

/// Whether `best` explains: its k3 is at most kExplained, or the upper end of the interval of its share of the k3 of
/// bf16 is below kExplainedShare.
bool explains(const Explanation& best, const std::vector<Candidate>& candidates);

/// The verdict on an explanation.
Verdict verdict_of(const std::vector<Candidate>& candidates, Explanation best);

/// A bar of a trainer: a figure and the range that passes.
struct Gate {
  std::string name{};        ///< "nemo-rl", "prime-rl", "verl", or the number
  std::string figure{};      ///< member of a candidate's record
  double low = 0, high = 0;  ///< values from low to high pass
};

/// The gate of a name or a number, which bears on k3. Throws Error naming the flag.
Gate gate_of(const std::string& text);

/// The figure of a gate.
double figure_of(const Gate& gate, const Figures& figures);

}  // namespace fp8::judge
