/// An overview of many runs, one row a run: the settings that differ, loss, gap to a baseline, speed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8/json/value.h"
#include "fp8/log/run.h"
#include "fp8/log/summary.h"

namespace fp8::log {

/// Settings that a run changed at a step.
struct OverviewChange {
  std::int64_t step = 0;                ///< number of the first step with them
  std::vector<std::string> settings{};  ///< value of each setting of the overview, as text; empty if it is unchanged
};

/// A run in an overview.
struct OverviewRow {
  Summary summary{};                      ///< summary of the run
  std::vector<std::string> settings{};    ///< first value of each setting of the overview, as text; empty if unknown
  std::vector<OverviewChange> changes{};  ///< increasing by step
  json::Object values{};                  ///< last value of every setting of the run
  std::string baseline{};                 ///< path of the run with which it is compared; empty without one
  std::optional<double> gap{};            ///< mean loss less that of the baseline, see compare()
  std::string without_gap{};              ///< why the run cannot be compared with a baseline; empty if it can
};

/// Many runs, in the order of reading.
struct Overview {
  std::vector<std::string> settings{};  ///< names of the settings that differ
  bool has_baseline = false;            ///< whether runs are compared with baselines
  std::vector<OverviewRow> rows{};      ///< one per run
};

/// Collects an overview from runs that are read one after the other, so that only one log is in memory.
class OverviewBuilder {
 public:
  /// Adds a run that was read with summary_metrics(), with its gap to its partner_of() the baselines if there are any
  /// and the two can be compared. Throws Error as check_comparable() of each baseline.
  void add(const Run& run, const std::string& name, std::span<const Run> baselines);
  /// The overview of the runs so far.
  Overview finish() const;

 private:
  bool has_baseline_ = false;
  std::vector<Run> runs_;  // only their settings
  std::vector<OverviewRow> rows_;
};

/// Whether a run of the overview has evaluations.
bool any_evaluated(const Overview& overview);

/// Sorts the rows by a column: run, loss, eval, best_eval, gap, tokens_per_s, steps or a setting that differs; by
/// decreasing values if a minus sign precedes the name. Numbers come before text, and missing values last. Throws Error
/// listing the names when `name` is none of them.
void sort_rows(Overview& overview, const std::string& name);

/// The summary of a run with its settings as "settings", the names of those that differ between runs as "differing",
/// and "gap" and "baseline" if there is a baseline.
json::Value record(const Overview& overview, const OverviewRow& row);

}  // namespace fp8::log
