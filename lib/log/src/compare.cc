// Matches two loss curves by tokens and computes statistics of their difference.
#include "fp8/log/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "gap.h"
#include "points.h"
#include "statistics.h"

namespace fp8::log {
namespace {

// Loss over tokens of the steps [begin, end); tokens increase.
struct Losses {
  std::span<const std::int64_t> tokens;
  std::span<const double> loss;
  std::size_t begin, end;

  std::size_t size() const { return end - begin; }
};

Losses losses_of(const Run& run, const std::string& metric) {
  if (run.steps.empty()) throw Error(run.path + ": contains no steps to compare");
  if (run.find(metric).empty()) throw Error(run.path + ": contains no finite " + excerpt(metric) + " to compare");
  if (run.tokens.front() < 0) throw Error(run.path + ": has no token counts, by which runs are compared");
  for (std::size_t i = 1; i < run.tokens.size(); ++i) {
    if (run.tokens[i] > run.tokens[i - 1]) continue;
    throw Error(run.path + ": the token count does not increase, so the run cannot be compared");
  }
  return {run.tokens, run.find(metric), 0, run.steps.size()};
}

// The steps whose token counts are in [first, last].
Losses between(const Losses& all, std::int64_t first, std::int64_t last) {
  const auto begin = std::ranges::lower_bound(all.tokens, first), end = std::ranges::upper_bound(all.tokens, last);
  const auto index = [&](auto at) { return static_cast<std::size_t>(at - all.tokens.begin()); };
  return {all.tokens, all.loss, index(begin), std::max(index(begin), index(end))};
}

// The loss of a run at increasing numbers of tokens within its range.
class Matched {
 public:
  Matched(const Losses& losses, std::int64_t first)
      : losses_(losses),
        at_(static_cast<std::size_t>(std::ranges::lower_bound(losses.tokens, first) - losses.tokens.begin())) {}
  // Interpolates linearly between records; NaN where one of the two is not finite.
  double loss_at(std::int64_t tokens) {
    const std::span<const std::int64_t> seen = losses_.tokens;
    while (seen[at_] < tokens) ++at_;
    if (seen[at_] == tokens) return losses_.loss[at_];
    const double below = static_cast<double>(seen[at_ - 1]), above = static_cast<double>(seen[at_]);
    const double from = losses_.loss[at_ - 1], to = losses_.loss[at_];
    if (!std::isfinite(from) || !std::isfinite(to)) return std::numeric_limits<double>::quiet_NaN();
    return std::lerp(from, to, (static_cast<double>(tokens) - below) / (above - below));
  }

 private:
  const Losses& losses_;
  std::size_t at_;
};

std::optional<double> ratio(const std::optional<double>& above, const std::optional<double>& below) {
  if (!above || !below || *below == 0) return std::nullopt;
  return *above / *below;
}

// Sets the statistics of the losses at the last part of the points of `grid`.
void measure(const Losses& grid, const Losses& a, const Losses& b, Comparison& c) {
  c.points = grid.size();
  c.window = last_part(c.points);
  const std::size_t first = grid.end - c.window;
  Matched in_a(a, grid.tokens[first]), in_b(b, grid.tokens[first]);
  double sum_a = 0, sum_b = 0, sum = 0;
  std::vector<double> gaps;
  for (std::size_t i = first; i < grid.end; ++i) {
    const double loss_a = in_a.loss_at(grid.tokens[i]), loss_b = in_b.loss_at(grid.tokens[i]);
    const double gap = loss_b - loss_a;
    if (i + 1 == grid.end && std::isfinite(gap)) c.final_a = loss_a, c.final_b = loss_b, c.final_gap = gap;
    if (!std::isfinite(loss_a) || !std::isfinite(loss_b)) continue;
    sum_a += loss_a;
    sum_b += loss_b;
    sum += gap;
    gaps.push_back(gap);
  }
  if (2 * gaps.size() < c.window) return;
  const auto n = static_cast<double>(gaps.size());
  c.loss_a = sum_a / n;
  c.loss_b = sum_b / n;
  c.gap = sum / n;
  c.gap_standard_error = standard_error(gaps);
}

// Whether the points of `a` are used rather than those of `b`, so that the answer is the same for both orders: fewer
// points, and of as many those with the lower token count where the two first differ.
bool used_rather(const Losses& a, const Losses& b) {
  if (a.size() == 0 || b.size() == 0) return b.size() == 0;
  if (a.size() != b.size()) return a.size() < b.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::int64_t x = a.tokens[a.begin + i], y = b.tokens[b.begin + i];
    if (x != y) return x < y;
  }
  return true;
}

// The points at which two runs are compared. If the ranges of tokens overlap, each end of the overlap is a point of one
// run, so there is at least one.
Losses grid_of(const Run& a, const Losses& all_a, const Run& b, const Losses& all_b) {
  const std::int64_t first = std::max(a.tokens.front(), b.tokens.front());
  const std::int64_t last = std::min(a.tokens.back(), b.tokens.back());
  if (first > last) {
    const auto range = [](const Run& run) {
      return run.path + " has " + std::to_string(run.tokens.front()) + " to " + std::to_string(run.tokens.back());
    };
    throw Error("no tokens in common: " + range(a) + ", " + range(b));
  }
  const Losses shared_a = between(all_a, first, last), shared_b = between(all_b, first, last);
  return used_rather(shared_a, shared_b) ? shared_a : shared_b;
}

// Sets the losses of the last evaluations of both runs at the same number of tokens.
void measure_evaluations(const Run& a, const Run& b, Comparison& c) {
  auto x = a.evaluations.rbegin(), y = b.evaluations.rbegin();
  while (x != a.evaluations.rend() && y != b.evaluations.rend()) {
    const double seen_a = tokens_at(a, x->first), seen_b = tokens_at(b, y->first);
    if (seen_a == seen_b) break;
    if (seen_a > seen_b)
      ++x;
    else
      ++y;
  }
  const bool none = x == a.evaluations.rend() || y == b.evaluations.rend();
  if (none || tokens_at(a, x->first) == 0) return;  // before the first step nothing was trained
  const double loss_a = x->second.loss, loss_b = y->second.loss;
  if (!std::isfinite(loss_a) || !std::isfinite(loss_b)) return;
  c.eval_a = loss_a;
  c.eval_b = loss_b;
  c.eval_gap = loss_b - loss_a;
}

}  // namespace

void check_comparable(const Run& run) { (void)losses_of(run, "loss"); }

Comparison compare(const Run& a, const Run& b) {
  Comparison c;
  c.a = summarize(a);
  c.b = summarize(b);
  const Losses all_a = losses_of(a, "loss"), all_b = losses_of(b, "loss");
  const Losses grid = grid_of(a, all_a, b, all_b);
  c.first_tokens = grid.tokens[grid.begin];
  c.last_tokens = grid.tokens[grid.end - 1];
  measure(grid, all_a, all_b, c);
  measure_evaluations(a, b, c);
  c.speedup = ratio(c.b.tokens_per_s, c.a.tokens_per_s);
  c.memory_ratio = ratio(c.b.memory_peak_bytes, c.a.memory_peak_bytes);
  return c;
}

Run gap_of(const Run& a, const Run& b, const std::string& metric) {
  const Losses all_a = losses_of(a, metric), all_b = losses_of(b, metric);
  const Losses grid = grid_of(a, all_a, b, all_b);
  Run run;
  run.metrics = {metric};
  run.columns.push_back({.name = metric, .values = {}});
  Matched in_a(all_a, grid.tokens[grid.begin]), in_b(all_b, grid.tokens[grid.begin]);
  for (std::size_t i = grid.begin; i < grid.end; ++i) {
    const std::int64_t tokens = grid.tokens[i];
    run.steps.push_back(static_cast<std::int64_t>(i));
    run.tokens.push_back(tokens);
    run.columns[0].values.push_back(in_b.loss_at(tokens) - in_a.loss_at(tokens));
  }
  return run;
}

}  // namespace fp8::log
