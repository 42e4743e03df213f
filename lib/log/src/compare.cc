// Matching two loss curves by tokens, and what their difference says.
#include "fp8/log/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "fp8/base/error.h"
#include "statistics.h"

namespace fp8::log {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Loss over tokens; tokens increase.
struct Losses {
  std::span<const std::int64_t> tokens;
  std::span<const double> loss;
};

Losses losses_of(const Run& run) {
  if (run.steps.empty()) throw Error(run.path + ": holds no steps to compare");
  if (run.find("loss") == nullptr) throw Error(run.path + ": holds no finite loss to compare");
  if (run.tokens.front() < 0) throw Error(run.path + ": does not count tokens, so nothing can be matched");
  if (std::adjacent_find(run.tokens.begin(), run.tokens.end(), std::greater_equal<>()) != run.tokens.end()) {
    throw Error(run.path + ": the count of tokens does not increase, so nothing can be matched");
  }
  return {run.tokens, *run.find("loss")};
}

// The part between two numbers of tokens, both included.
Losses between(const Losses& all, std::int64_t first, std::int64_t last) {
  const auto from = std::lower_bound(all.tokens.begin(), all.tokens.end(), first) - all.tokens.begin();
  const auto to = std::upper_bound(all.tokens.begin(), all.tokens.end(), last) - all.tokens.begin();
  const auto at = static_cast<std::size_t>(from), n = static_cast<std::size_t>(std::max<std::ptrdiff_t>(to - from, 0));
  return {all.tokens.subspan(at, n), all.loss.subspan(at, n)};
}

// Loss at `tokens`, which lies within the curve: of the record there, or linear between its neighbours.
double loss_at(const Losses& losses, std::int64_t tokens) {
  const auto at = static_cast<std::size_t>(std::lower_bound(losses.tokens.begin(), losses.tokens.end(), tokens) -
                                           losses.tokens.begin());
  if (losses.tokens[at] == tokens) return losses.loss[at];
  const auto below = static_cast<double>(losses.tokens[at - 1]), above = static_cast<double>(losses.tokens[at]);
  return std::lerp(losses.loss[at - 1], losses.loss[at], (static_cast<double>(tokens) - below) / (above - below));
}

std::optional<double> ratio(const std::optional<double>& above, const std::optional<double>& below) {
  if (!above || !below || *below == 0) return std::nullopt;
  return *above / *below;
}

// Fills in what the matched losses say.
void measure(std::span<const double> a, std::span<const double> b, Comparison& c) {
  c.points = a.size();
  c.window = last_part(a.size());
  std::vector<double> of_a, of_b, gaps;
  for (std::size_t i = a.size() - c.window; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
    of_a.push_back(a[i]);
    of_b.push_back(b[i]);
    gaps.push_back(b[i] - a[i]);
  }
  if (std::isfinite(b.back() - a.back())) c.final_gap = b.back() - a.back();
  if (2 * gaps.size() < c.window) return;
  c.loss_a = mean(of_a);
  c.loss_b = mean(of_b);
  c.gap = mean(gaps);
  c.gap_standard_error = standard_error(gaps);
}

template <typename T>
json::Value or_null(const std::optional<T>& value) {
  return value ? json::Value(*value) : json::Value();
}

}  // namespace

Comparison compare(const Run& a, const Run& b) {
  const Losses all_a = losses_of(a), all_b = losses_of(b);
  Comparison c;
  c.a = summarize(a);
  c.b = summarize(b);
  const std::int64_t first = std::max(all_a.tokens.front(), all_b.tokens.front());
  const std::int64_t last = std::min(all_a.tokens.back(), all_b.tokens.back());
  const Losses shared_a = between(all_a, first, last), shared_b = between(all_b, first, last);
  // Where they overlap at all, an end of the overlap is a point of one of them.
  if (first > last) {
    const auto range = [](const Run& run) {
      return run.path + " has " + std::to_string(run.tokens.front()) + " to " + std::to_string(run.tokens.back());
    };
    throw Error("no tokens in common: " + range(a) + ", " + range(b));
  }
  const bool fewer_in_a = shared_a.tokens.size() < shared_b.tokens.size();
  const Losses& grid = shared_b.tokens.empty() || (fewer_in_a && !shared_a.tokens.empty()) ? shared_a : shared_b;
  c.first_tokens = grid.tokens.front();
  c.last_tokens = grid.tokens.back();
  std::vector<double> matched_a, matched_b;
  for (const std::int64_t tokens : grid.tokens) {
    matched_a.push_back(loss_at(all_a, tokens));
    matched_b.push_back(loss_at(all_b, tokens));
  }
  measure(matched_a, matched_b, c);
  c.speedup = ratio(c.b.tokens_per_s, c.a.tokens_per_s);
  c.memory_ratio = ratio(c.b.memory_peak_bytes, c.a.memory_peak_bytes);
  return c;
}

bool meets(const Comparison& c, double nats) { return c.gap && std::abs(*c.gap) <= nats; }

bool beyond_noise(const Comparison& c) {
  return c.gap && c.gap_standard_error && std::abs(*c.gap) > 2 * *c.gap_standard_error;
}

json::Value record(const Comparison& c, std::optional<double> gate) {
  return json::object({{"type", "compare"},
                       {"a", record(c.a)},
                       {"b", record(c.b)},
                       {"points", c.points},
                       {"first_tokens", c.first_tokens},
                       {"last_tokens", c.last_tokens},
                       {"window", c.window},
                       {"loss_a", or_null(c.loss_a)},
                       {"loss_b", or_null(c.loss_b)},
                       {"gap", or_null(c.gap)},
                       {"gap_standard_error", or_null(c.gap_standard_error)},
                       {"beyond_noise", c.gap_standard_error ? json::Value(beyond_noise(c)) : json::Value()},
                       {"final_gap", or_null(c.final_gap)},
                       {"speedup", or_null(c.speedup)},
                       {"memory_ratio", or_null(c.memory_ratio)},
                       {"gate", or_null(gate)},
                       {"met", gate ? json::Value(meets(c, *gate)) : json::Value()}});
}

}  // namespace fp8::log
