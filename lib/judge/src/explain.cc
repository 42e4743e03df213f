// Fits and tests of temperatures, the choice of an explanation, and the sentence about it.
#include "fp8/judge/explain.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"

namespace fp8::judge {
namespace {

constexpr double kHalf = 0.5;  // share of k3 that a change may leave
constexpr std::int64_t kFewSequences = 32;
constexpr std::int64_t kRun = 32;          // tokens of a unit where there are few sequences
constexpr double kLeast = 0.4, kMost = 4;  // temperatures

// The number between `low` and `high` where `f`, which has one minimum there, is least.
template <class F>
double least_between(double low, double high, const F& f) {
  const double golden = (std::sqrt(5.0) - 1) / 2;
  double a = high - golden * (high - low), b = low + golden * (high - low), fa = f(a), fb = f(b);
  while (high - low > 1e-5) {
    if (fa < fb) {
      high = b;
      b = a;
      fb = fa;
      a = high - golden * (high - low);
      fa = f(a);
    } else {
      low = a;
      a = b;
      fa = fb;
      b = low + golden * (high - low);
      fb = f(b);
    }
  }
  return (low + high) / 2;
}

double mean_of(const std::vector<SequenceSums>& sequences) { return mean_over(sequences).value; }

std::string short_text(double x) { return format_short(x, 2); }

// "blockwise", "bf16 with checkpoint old.h5".
std::string short_name(const Candidate& c) {
  return c.name() + (c.other_checkpoint ? " with checkpoint " + c.checkpoint : "");
}

// "recipe blockwise".
std::string text_of(const Candidate& c) { return (c.recipe.empty() ? "" : "recipe ") + short_name(c); }

std::string text_of(Change change, double temperature) {
  switch (change) {
    case Change::none:
      return "";
    case Change::temperature:
      return " at temperature " + format_short(temperature, 3);
    case Change::behind:
      return " with log-probabilities that are one token late";
    case Change::ahead:
      return " with log-probabilities that are one token early";
    case Change::without_first:
      return " without the first token";
    case Change::with_bos:
      return " with the beginning-of-sequence token before the first token";
  }
  return "";
}

// The changes of a candidate by itself.
std::vector<Explanation> changes_of(const std::vector<Candidate>& candidates, std::size_t i) {
  const Candidate& c = candidates[i];
  std::vector<Explanation> all{
      {.candidate = i, .k3 = c.figures.k3(), .sequences = c.figures.sequences()},
      {.candidate = i, .change = Change::behind, .k3 = mean_of(c.shifted.behind), .sequences = c.shifted.behind},
      {.candidate = i, .change = Change::ahead, .k3 = mean_of(c.shifted.ahead), .sequences = c.shifted.ahead}};
  if (c.temperature && c.temperature->beats_one)
    all.push_back({.candidate = i,
                   .change = Change::temperature,
                   .temperature = c.temperature->temperature,
                   .k3 = c.temperature->k3,
                   .sequences = c.temperature->sequences});
  return all;
}

// The sums of `whole` over the sequences that `part` has tokens of.
std::vector<SequenceSums> over_same(const std::vector<SequenceSums>& whole, const std::vector<SequenceSums>& part) {
  std::vector<SequenceSums> same = whole;
  same.resize(part.size());
  for (std::size_t i = 0; i < part.size(); ++i)
    if (part[i].tokens == 0) same[i] = {};
  return same;
}

// The probability that at least `hits` of `all` fair coins show heads.
double coin_share(int hits, int all) {
  double sum = 0;
  for (int i = hits; i <= all; ++i)
    sum += std::exp(std::lgamma(all + 1.0) - std::lgamma(i + 1.0) - std::lgamma(all - i + 1.0) - all * std::log(2.0));
  return sum;
}

// Whether the mean of `a` is at most `share` of that of `b` over the same sequences, beyond chance: by the interval of
// the mean, or, since a few tokens with a large k3 make that wide, by the number of sequences for which it holds.
bool at_most(const std::vector<SequenceSums>& a, const std::vector<SequenceSums>& b, double share, double level) {
  std::vector<SequenceSums> difference = over_same(b, a);
  int hits = 0, all = 0;
  for (std::size_t i = 0; i < difference.size(); ++i) {
    if (difference[i].tokens == 0) continue;
    difference[i].sum = a[i].sum / a[i].tokens * difference[i].tokens - share * difference[i].sum;
    hits += difference[i].sum < 0 ? 1 : 0;
    ++all;
  }
  const Mean mean = mean_over(difference, level);
  return mean.value < 0 && (mean.high < 0 || coin_share(hits, all) < 1 - level);
}

// The sums of k3 of a candidate under a change; null if they were not computed.
const std::vector<SequenceSums>* sums_of(const Candidate& c, Change change) {
  switch (change) {
    case Change::none:
      return &c.figures.sequences();
    case Change::temperature:
      return c.temperature ? &c.temperature->sequences : nullptr;
    case Change::behind:
      return &c.shifted.behind;
    case Change::ahead:
      return &c.shifted.ahead;
    case Change::without_first:
    case Change::with_bos:
      return nullptr;
  }
  return nullptr;
}

// Whether the mean of `a` is above that of `b` over the same sequences, beyond chance. Log-probabilities that are equal
// up to the rounding of f32 are so by no chance.
bool is_worse(const std::vector<SequenceSums>& a, const std::vector<SequenceSums>& b) {
  constexpr double kEqual = 1e-11;
  if (mean_of(b) < kEqual) return mean_of(a) >= kEqual;
  std::vector<SequenceSums> difference = over_same(a, b);
  for (std::size_t i = 0; i < difference.size(); ++i)
    if (difference[i].tokens > 0) difference[i].sum -= b[i].sum;
  const Mean mean = mean_over(difference);
  return mean.value > 0 && mean.low > 0;
}

// Whether the rollouts give almost no token a lower log-probability than the candidate, and some a higher one: tokens
// that were removed before the softmax leave each of the others more.
bool is_one_sided(const Candidate& c) {
  constexpr double kShare = 0.02, kLeastMean = 0.005;  // of the sum of |d|, nats
  const double lower = (c.figures.mean_abs() - c.figures.k1()) / 2;
  return c.figures.mean_abs() > kLeastMean && lower < kShare * c.figures.mean_abs();
}

}  // namespace

void TemperatureFit::add(const Token& token, const TokenGrid& grid, double stated) {
  entries_.push_back({token, grid, stated});
}

double TemperatureFit::k3_at(const Entry& e, double inverse) const {
  return k3_of(e.token.q - e.grid.at(e.stated * inverse));
}

std::int64_t TemperatureFit::unit_of(std::size_t i) const {
  if (entries_.back().token.sequence - entries_.front().token.sequence + 1 >= kFewSequences)
    return entries_[i].token.sequence;
  return static_cast<std::int64_t>(i) / kRun;
}

std::optional<TemperatureFit::Result> TemperatureFit::fit(std::int64_t tests) const {
  if (entries_.empty() || unit_of(entries_.size() - 1) == unit_of(0)) return std::nullopt;
  const auto loss = [&](double log_inverse) {
    double sum = 0;
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (!held_out(i)) sum += k3_at(entries_[i], std::exp(log_inverse));
    return sum;
  };
  const double inverse = std::exp(least_between(-std::log(kMost), -std::log(kLeast), loss));
  Result result{.temperature = 1 / inverse};
  std::vector<SequenceSums> fitted, plain;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    const double k3 = k3_at(e, inverse);
    add_to(result.sequences, e.token.sequence, k3);
    if (!held_out(i)) continue;
    add_to(fitted, unit_of(i), k3);
    add_to(plain, unit_of(i), k3_of(e.token.d()));
  }
  if (fitted.empty()) return std::nullopt;
  result.k3 = mean_of(result.sequences);
  result.k3_held_out = mean_of(fitted);
  result.k3_at_one = mean_of(plain);
  result.beats_one = at_most(fitted, plain, kHalf, 1 - 0.05 / static_cast<double>(std::max<std::int64_t>(tests, 1)));
  return result;
}

const Candidate* plain_bf16(const std::vector<Candidate>& candidates) {
  const auto found =
      std::ranges::find_if(candidates, [](const Candidate& c) { return c.name() == "bf16" && !c.other_checkpoint; });
  return found == candidates.end() ? nullptr : &*found;
}

Explanation best_of(const std::vector<Candidate>& candidates, const std::vector<Explanation>& more) {
  std::vector<Explanation> all = more;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    for (Explanation& e : changes_of(candidates, i)) all.push_back(std::move(e));
  const Explanation* best = nullptr;
  for (const Explanation& e : all) {
    const std::vector<SequenceSums>& unchanged = candidates[e.candidate].figures.sequences();
    const bool counts = e.change == Change::none ||
                        (mean_of(e.sequences) <= kHalf * mean_of(over_same(unchanged, e.sequences)) &&
                         std::ranges::any_of(e.sequences, [](const SequenceSums& s) { return s.tokens > 0; }));
    if (counts && (best == nullptr || e.k3 < best->k3)) best = &e;
  }
  if (best == nullptr) throw Error("no candidate");
  return *best;
}

bool explains(const Explanation& best, const std::vector<Candidate>& candidates) {
  if (best.k3 <= kExplained) return true;
  const Candidate* bf16 = plain_bf16(candidates);
  if (bf16 == nullptr || (best.change == Change::none && bf16 == &candidates[best.candidate])) return false;
  return at_most(best.sequences, bf16->figures.sequences(), kExplainedShare, 0.95);
}

Verdict verdict_of(const std::vector<Candidate>& candidates, Explanation best) {
  Verdict v{.explained = explains(best, candidates), .best = std::move(best)};
  const Candidate& c = candidates[v.best.candidate];
  const Candidate* bf16 = plain_bf16(candidates);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::vector<SequenceSums>* other = sums_of(candidates[i], v.best.change);
    if (i != v.best.candidate && other != nullptr && !is_worse(*other, v.best.sequences)) v.equal.push_back(i);
  }
  const std::string name = text_of(c) + text_of(v.best.change, v.best.temperature);
  const std::string beside = bf16 != nullptr && (bf16 != &c || v.best.change != Change::none)
                                 ? "; bf16 " + short_text(bf16->figures.k3())
                                 : "";
  if (!v.explained) {
    const bool truncated = std::ranges::any_of(candidates, is_one_sided);
    const std::optional<Token>& from = c.figures.first_large();
    v.text = "nothing here explains them: " + name + ", the nearest, leaves mean |d| " +
             short_text(c.figures.mean_abs()) + " (k3 " + short_text(v.best.k3) + beside + ")";
    if (from)
      v.text +=
          ", from token " + std::to_string(from->position) + " of sequence " + std::to_string(from->sequence) + " on";
    if (truncated) v.text += "; no token is less probable in the rollouts, as after top-p or top-k";
    return v;
  }
  v.text = name + " explains the log-probabilities (k3 " + short_text(v.best.k3) + beside + ")";
  if (v.best.change != Change::temperature) v.text += "; no temperature";
  std::string equal;
  for (const std::size_t i : v.equal) equal += (equal.empty() ? "" : ", ") + short_name(candidates[i]);
  if (!equal.empty()) v.text += "; within chance of it: " + equal;
  return v;
}

Gate gate_of(const std::string& text) {
  if (text == "nemo-rl") return {text, "mult_prob_error", 0, 1.05};
  if (text == "prime-rl") return {text, "k3", 0, 0.015};
  if (text == "verl") return {text, "weight_mean", 0.5, 2};
  const std::optional<double> bound = parse_double(text);
  if (!bound || !(*bound >= 0))
    throw Error(cli::flag_name("gate") + ": '" + excerpt(text) +
                "' is neither nemo-rl, prime-rl or verl nor a number from 0");
  return {text, "k3", 0, *bound};
}

double figure_of(const Gate& gate, const Figures& figures) {
  if (gate.figure == "mult_prob_error") return figures.mult_prob_error();
  return gate.figure == "k3" ? figures.k3() : figures.weight_mean();
}

}  // namespace fp8::judge
