/// Summary statistics of a run. fp8-log formats them as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8/base/slow_rank.h"
#include "fp8/json/value.h"
#include "fp8/log/run.h"

namespace fp8::log {

/// Summary statistics of a log. A value is nullopt where the log lacks its inputs.
struct Summary {
  std::string path{};                             ///< as given
  std::string name{};                             ///< short name
  std::int64_t steps = 0;                         ///< number of the last step; 0 without any
  std::optional<std::int64_t> planned_steps{};    ///< steps of the whole run
  std::optional<std::int64_t> tokens{};           ///< tokens seen at the last step
  std::optional<double> final_loss{};             ///< loss of the last step, nats per token; nullopt when not finite
  std::optional<double> best_loss{};              ///< minimum over steps
  std::optional<double> mean_loss_last{};         ///< mean of the finite losses among the last `last_steps` records
  std::int64_t last_steps = 0;                    ///< see last_part()
  std::optional<double> eval_loss{};              ///< loss of the last evaluation
  std::optional<double> best_eval_loss{};         ///< lowest loss of the evaluations over as many targets as the last
  std::optional<std::int64_t> best_eval_step{};   ///< the first step with it
  std::optional<std::int64_t> best_checkpoint{};  ///< step of the checkpoint with the lowest such loss
  std::optional<double> tokens_per_s{};           ///< median over steps
  std::optional<double> tokens_per_s_p10{};       ///< 10th percentile
  std::optional<double> tokens_per_s_p90{};       ///< 90th percentile
  std::optional<double> data_wait_share{};        ///< time waiting for data over the time of all steps, 0 to 1
  std::optional<double> memory_peak_bytes{};      ///< maximum over steps
  std::optional<double> sent_bytes{};             ///< what ranks sent; mean over the last `last_steps` records
  std::optional<double> fp8_flop_share{};         ///< share of the linears' FLOPs; mean over steps, 0 to 1
  std::optional<double> fp8_flop_share_total{};   ///< share of all matmul FLOPs; mean over steps, 0 to 1
  std::optional<double> fp4_flop_share{};         ///< as fp8_flop_share; nothing: no linear had recipe nvfp4
  std::optional<double> fp4_flop_share_total{};   ///< as fp8_flop_share_total
  std::optional<double> aux_loss{};               ///< mean over the last `last_steps` records, as the next four
  std::optional<double> z_loss{};                 ///< loss of the routers' logits
  std::optional<double> expert_load_max{};        ///< largest over mean load of an expert
  std::optional<double> expert_idle{};            ///< experts without rows, of all layers
  std::optional<std::int64_t> experts{};          ///< experts of all layers, as the last start says
  std::optional<double> expert_passes{};          ///< the most passes of a layer, if ranks share experts
  std::string precision{};                        ///< precision of the last step; empty when the log lacks it
  std::string recipe{};                           ///< recipe of the last step; empty for other precisions than FP8
  std::optional<bool> emulated{};                 ///< whether the last step was emulated
  std::string mesh{};                             ///< ranks along the dimensions at the last start, see Settings::mesh
  std::string documents{};              ///< joined or separate, at the last start; empty when the log lacks it
  std::string adapters{};               ///< settings of LoRA at the last start; empty without
  std::string delayed{};                ///< history, algorithm and margin of recipe delayed, if used last
  std::optional<SlowRank> slow_rank{};  ///< see find_slow_rank()
  std::vector<std::pair<std::int64_t, Phase>> phases{};    ///< number of the first step, and the phase
  std::vector<std::pair<std::int64_t, Change>> changes{};  ///< number of the first step with it, and the change
  std::int64_t skipped = 0;                                ///< steps whose update was skipped
  std::int64_t masked = 0;                                 ///< steps without targets, which updated nothing
  std::int64_t checkpoints = 0;                            ///< saves that no resumed run replaced
  std::int64_t restarts = 0;                               ///< number of restarts
  std::int64_t warnings = 0;                               ///< number of warning records
  bool finished = false;                                   ///< whether the log ends with an end record
  std::string reason{};                                    ///< reason in the end record
  bool diverged = false;  ///< the end record says so, or the loss of the last step that has targets is not finite
};

/// Fields that summarize() reads.
std::vector<std::string> summary_metrics();

/// Length of the last part of a run with `n` records: n / 10, at least 50, at most n / 2; all rounded up.
std::size_t last_part(std::size_t n);

/// The rank for which the others wait, in a run that was read with summary_metrics(): of the last 50 records since the
/// newest start, of which at least 8 name a rank, nine in ten name the same one, with a median lag of 5 % or more,
/// which is the lag of the result.
std::optional<SlowRank> find_slow_rank(const Run& run);

/// Summarizes a run that was read with summary_metrics(). Where the path is the folder of a run, best_checkpoint is one
/// of the checkpoints in it, else one of those in the log.
Summary summarize(const Run& run);

/// One object, {"type": "summary", "path": ..., ...}, with the names of the fields above; null for missing values.
json::Value record(const Summary& summary);

}  // namespace fp8::log
