/// One run laid over another at the same number of tokens seen.
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
  std::optional<double> gap{};     ///< loss_b - loss_a; missing when under half the window is finite in both
  std::optional<double> gap_standard_error{};  ///< of `gap`; missing for fewer than two points
  std::optional<double> final_gap{};           ///< B - A at the last matched point
  std::optional<double> speedup{};             ///< median tokens/s of B over that of A
  std::optional<double> memory_ratio{};        ///< peak memory of B over that of A
};

/// Compares two runs that were read with summary_metrics(). The points are those of the run with fewer of them where
/// the two overlap (B's when equal); the other's loss at the same number of tokens is that of its record there, or
/// linear between its two neighbours. The gap is the mean of B - A over the last part of the points, and its standard
/// error allows for differences of neighbouring steps being alike.
/// Source: Newey and West 1987 (Bartlett weights, lag 4 (n/100)^(2/9)).
/// Throws Error when a run has no steps, does not count tokens, or they have none in common.
Comparison compare(const Run& a, const Run& b);

/// Whether the gap is at most `nats` either way. A gap that is missing meets no gate.
bool meets(const Comparison& comparison, double nats);

/// Whether the gap is more than twice its standard error; false when either is missing.
bool beyond_noise(const Comparison& comparison);

/// One object, {"type": "compare", "a": summary, "b": summary, "gap": ..., "gate": ..., "met": ...}; null for what is
/// missing, and for "gate" and "met" without a gate.
json::Value record(const Comparison& comparison, std::optional<double> gate);

}  // namespace fp8::log
