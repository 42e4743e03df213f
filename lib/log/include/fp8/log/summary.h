/// A run in a few numbers. Not text for people: fp8-log makes that of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8/json/value.h"
#include "fp8/log/run.h"

namespace fp8::log {

/// What a log comes to. A number is missing where the log lacks what it is made of.
struct Summary {
  std::string path{};                           ///< as given
  std::string name{};                           ///< short name
  std::int64_t steps = 0;                       ///< number of the last step; 0 without any
  std::optional<std::int64_t> planned_steps{};  ///< length of the whole run
  std::optional<std::int64_t> tokens{};         ///< seen at the last step
  std::optional<double> final_loss{};           ///< of the last step, nats per token; missing when not finite
  std::optional<double> best_loss{};            ///< least of all steps
  std::optional<double> mean_loss_last{};       ///< mean of the finite losses among the last `last_steps` records
  std::int64_t last_steps = 0;                  ///< see last_part()
  std::optional<double> eval_loss{};            ///< of the last evaluation
  std::optional<double> tokens_per_s{};         ///< median over steps
  std::optional<double> tokens_per_s_p10{};     ///< 10th percentile
  std::optional<double> tokens_per_s_p90{};     ///< 90th percentile
  std::optional<double> data_wait_share{};      ///< of the time of all steps, 0 to 1
  std::optional<double> memory_peak_bytes{};    ///< greatest of all steps
  std::optional<double> fp8_flop_share{};       ///< mean over steps, 0 to 1
  std::string precision{};                      ///< of the last step; empty when the log does not say
  std::string recipe{};                         ///< of the last step; empty outside FP8
  std::optional<bool> emulated{};               ///< of the last step
  std::vector<std::pair<std::int64_t, Phase>> phases{};  ///< first step's number and setting
  std::int64_t skipped = 0;                              ///< steps whose update was skipped
  std::int64_t checkpoints = 0;                          ///< saved, and not replaced by a resumption
  std::int64_t restarts = 0;                             ///< how often the run went on after it had stopped
  std::int64_t warnings = 0;                             ///< warning records
  bool finished = false;                                 ///< whether the log ends with an end record
  std::string reason{};                                  ///< of the end record
};

/// Fields that summarize() looks at.
std::vector<std::string> summary_metrics();

/// How many of `n` records count as the last part of a run: a tenth, but at least 50, and never more than half of them,
/// rounded up.
std::size_t last_part(std::size_t n);

/// Sums up a run that was read with summary_metrics().
Summary summarize(const Run& run);

/// One object, {"type": "summary", "path": ..., ...}, with the names of the fields above; null for what is missing.
json::Value record(const Summary& summary);

}  // namespace fp8::log
