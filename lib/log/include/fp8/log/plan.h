/// A finished run beside its plan by fp8-plan: each figure that both have.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp8/json/value.h"
#include "fp8/log/run.h"

namespace fp8::log {

/// Unit of a figure.
enum class PlanUnit : std::uint8_t { seconds, bytes, tokens_per_s };

/// A figure of the plan, which is an interval or one number, and of the run.
struct PlannedFigure {
  std::string name;                     ///< as in the plan: step_s, terms_s.casts, memory_bytes.moments
  PlanUnit unit = PlanUnit::seconds;    ///< unit of all three
  double low = 0, high = 0;             ///< planned; equal if it is one number
  std::optional<double> measured = {};  ///< nothing: the run does not have it
  /// Whether the measured value is inside of the interval or, for bytes, not above it.
  std::optional<bool> inside() const {
    if (!measured) return std::nullopt;
    return *measured <= high && (unit == PlanUnit::bytes || *measured >= low);
  }
};

/// A run beside its plan.
struct PlanComparison {
  std::string path;                         ///< path of the run, as given
  std::string precision, recipe;            ///< precision and recipe of both; the recipe is empty unless fp8
  std::string machine;                      ///< machine of the plan; empty without one
  std::string profile;                      ///< file with the terms of the run; empty without
  std::vector<PlannedFigure> figures;       ///< figures in the order of the plan
  std::vector<std::string> differences;     ///< settings of the run that the plan does not have, a line each
  std::optional<double> data_wait_share{};  ///< time waiting for data over that of all steps, which no plan has
};

/// Fields of step records that compare_with_plan() needs.
std::vector<std::string> plan_metrics();

/// Compares a run that was read with plan_metrics() with the plan of its precision and recipe in `path`, the output of
/// fp8-plan --json. Times are medians over the steps but the first of each start; terms are those of rank 0 in the
/// newest profile in the folder of the run; bytes by category are those of the last end record, and the total is the
/// largest resident memory of a rank. Throws Error `path: reason` for a file without such a plan, and for a run
/// without steps.
PlanComparison compare_with_plan(const Run& run, const std::string& path);

/// {"type":"plan_comparison",...}, see fp8-log(1).
json::Value record(const PlanComparison& comparison);

}  // namespace fp8::log
