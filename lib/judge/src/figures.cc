// Sums, a histogram of d with bins of equal relative width, and intervals.
#include "fp8/judge/figures.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/student.h"

namespace fp8::judge {
namespace {

constexpr int kPerOctave = 32, kLeastExponent = -30, kMostExponent = 8;
constexpr int kBins = (kMostExponent - kLeastExponent) * kPerOctave;  // of one sign; between them a bin of |d| ~ 0

// The bin of d among 2 kBins + 1, in ascending order of d.
int bin_of(double d) {
  const double at = (std::log2(std::abs(d)) - kLeastExponent) * kPerOctave;
  if (!(at >= 0)) return kBins;
  const int i = static_cast<int>(std::min<double>(at, kBins - 1));
  return d > 0 ? kBins + 1 + i : kBins - 1 - i;
}

// The d in the middle of a bin.
double middle_of(int bin) {
  if (bin == kBins) return 0;
  const int i = bin > kBins ? bin - kBins - 1 : kBins - 1 - bin;
  const double d = std::exp2((i + 0.5) / kPerOctave + kLeastExponent);
  return bin > kBins ? d : -d;
}

std::vector<Bin> probability_bins() {
  constexpr std::array<double, 9> kEdges{0, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 0.99, 1};
  std::vector<Bin> bins;
  for (std::size_t i = 0; i + 1 < kEdges.size(); ++i) bins.push_back({kEdges[i], kEdges[i + 1]});
  return bins;
}

void add_to(Bin& bin, double k3, double abs) {
  ++bin.tokens;
  bin.k3 += k3;
  bin.abs += abs;
}

json::Array records_of(const std::vector<Bin>& bins) {
  json::Array list;
  for (const Bin& b : bins) {
    if (b.tokens == 0) continue;
    const auto n = static_cast<double>(b.tokens);
    list.push_back(json::object(
        {{"from", b.from}, {"to", b.to}, {"tokens", b.tokens}, {"k3", b.k3 / n}, {"mean_abs", b.abs / n}}));
  }
  return list;
}

}  // namespace

double k3_of(double d) { return std::expm1(-d) + d; }

Mean mean_over(const std::vector<SequenceSums>& sequences, double level) {
  double n = 0, t = 0, s = 0;
  for (const SequenceSums& q : sequences) {
    if (q.tokens == 0) continue;
    n += 1;
    t += q.tokens;
    s += q.sum;
  }
  if (n == 0) return {};
  const double mean = s / t;
  if (n < 2) return {mean, mean, mean};
  double squares = 0;
  for (const SequenceSums& q : sequences) squares += std::pow(q.sum - mean * q.tokens, 2);
  const double error = std::sqrt(n / (n - 1) * squares) / t;
  const double half = student_quantile(level, static_cast<std::size_t>(std::min(n - 1, 1000.0))) * error;
  return {mean, mean - half, mean + half};
}

void add_to(std::vector<SequenceSums>& sequences, std::int64_t sequence, double value) {
  const auto i = static_cast<std::size_t>(sequence);
  if (sequences.size() <= i) sequences.resize(i + 1);
  sequences[i].tokens += 1;
  sequences[i].sum += value;
}

Figures::Figures(std::int64_t worst)
    : most_worst_(static_cast<std::size_t>(worst)), probabilities_(probability_bins()), histogram_(2 * kBins + 1) {}

void Figures::add(const Token& token) {
  const double d = token.d(), k3 = k3_of(d), abs = std::abs(d);
  ++tokens_;
  sum_d_ += d;
  sum_k3_ += k3;
  sum_reverse_ += k3_of(-d);
  sum_abs_ += abs;
  sum_mult_ += std::exp(abs);
  sum_weight_ += std::exp(-d);
  outside_ += abs > std::log(2.0) ? 1 : 0;
  add_to(sequences_, token.sequence, k3);
  if (!first_large_ && abs > kLarge) first_large_ = token;
  ++histogram_[static_cast<std::size_t>(bin_of(d))];
  keep_if_worst(token);
  const auto octave =
      static_cast<std::size_t>(std::log2(static_cast<double>(std::max<std::int64_t>(token.position, 1))));
  while (positions_.size() <= octave) {
    const double from = std::exp2(static_cast<double>(positions_.size()));
    positions_.push_back({from, 2 * from});
  }
  add_to(positions_[octave], k3, abs);
  const double probability = std::exp(token.q);
  const auto bin = std::ranges::find_if(probabilities_, [&](const Bin& b) { return probability < b.to; });
  add_to(bin != probabilities_.end() ? *bin : probabilities_.back(), k3, abs);
}

void Figures::keep_if_worst(const Token& token) {
  const auto larger = [](const Token& a, const Token& b) { return std::abs(a.d()) > std::abs(b.d()); };
  if (worst_.size() == most_worst_ && (worst_.empty() || !larger(token, worst_.back()))) return;
  worst_.insert(std::ranges::upper_bound(worst_, token, larger), token);
  if (worst_.size() > most_worst_) worst_.pop_back();
}

double Figures::ratio_quantile(double share) const {
  if (tokens_ == 0) return 1;
  const double wanted = share * static_cast<double>(tokens_);
  double below = 0;
  for (int bin = 0; bin < std::ssize(histogram_); ++bin) {
    below += static_cast<double>(histogram_[static_cast<std::size_t>(bin)]);
    if (below >= wanted) return std::exp(middle_of(bin));
  }
  return 1;
}

void Figures::write(json::Object& record) const {
  const Mean k3_mean = mean_over(sequences_);
  record.set("tokens", tokens_);
  record.set("k1", k1());
  record.set("k3", k3());
  record.set("k3_interval", json::Array{k3_mean.low, k3_mean.high});
  record.set("k1_reverse", -k1());
  record.set("k3_reverse", k3_reverse());
  record.set("mean_abs", mean_abs());
  record.set("max_abs", worst_.empty() ? 0 : std::abs(worst_.front().d()));
  if (!worst_.empty())
    record.set("max_at", json::object({{"sequence", worst_.front().sequence},
                                       {"position", worst_.front().position},
                                       {"id", worst_.front().id}}));
  record.set("mult_prob_error", mult_prob_error());
  json::Value quantiles = json::object({});
  for (const auto& [name, share] : {std::pair{"p01", 0.01}, {"p10", 0.1}, {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}})
    quantiles.as_object().set(name, ratio_quantile(share));
  record.set("ratio", std::move(quantiles));
  record.set("ratio_outside", outside());
  record.set("weight_mean", weight_mean());
  record.set("by_position", records_of(positions_));
  record.set("by_probability", records_of(probabilities_));
}

}  // namespace fp8::judge
