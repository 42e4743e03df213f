/// Compares two runs at the same number of tokens seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fp8/json/value.h"
#include "fp8/log/run.h"
#include "fp8/log/summary.h"

namespace fp8::log {

/// How B differs from A. Losses are in nats per token.
struct Comparison {
  Summary a{};                     ///< the run compared against
  Summary b{};                     ///< the run compared
  std::size_t points = 0;          ///< matched points
  std::int64_t first_tokens = 0;   ///< tokens seen at the first matched point
  std::int64_t last_tokens = 0;    ///< tokens seen at the last matched point
  std::size_t window = 0;          ///< matched points in the last part, see last_part()
  std::optional<double> loss_a{};  ///< mean of A over the window
  std::optional<double> loss_b{};  ///< mean of B over the window
  std::optional<double> gap{};     ///< loss_b - loss_a; nullopt when under half the window is finite in both runs
  std::optional<double> gap_standard_error{};  ///< of `gap`; nullopt for fewer than two points
  std::optional<double> final_gap{};           ///< B - A at the last matched point
  std::optional<double> speedup{};             ///< median tokens/s of B over that of A
  std::optional<double> memory_ratio{};        ///< peak memory of B over that of A
};

/// Compares two runs that were read with summary_metrics(). The points are the steps, within the range of tokens that
/// both runs cover, of the run with fewer steps there (of B when equal). The loss of the other run at such a point is
/// the loss of its record with that number of tokens, or interpolated linearly between the two neighbouring records.
/// The gap is the mean of B - A over the last part of the points; its standard error accounts for the correlation
/// between neighbouring steps.
/// Source: Newey and West 1987 (Bartlett weights, lag 4 (n/100)^(2/9)).
/// Throws Error when a run has no steps or no token counts, or when the ranges of tokens do not overlap.
Comparison compare(const Run& a, const Run& b);

/// Whether |gap| <= `nats`; false when the gap is missing.
bool meets(const Comparison& comparison, double nats);

/// Whether the gap is more than twice its standard error; false when either is missing.
bool beyond_noise(const Comparison& comparison);

/// One object, {"type": "compare", "a": summary, "b": summary, "gap": ..., "gate": ..., "met": ...}. Missing values
/// are null, and so are "gate" and "met" without a gate.
json::Value record(const Comparison& comparison, std::optional<double> gate);

}  // namespace fp8::log
