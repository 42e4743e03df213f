// Computes the summary statistics of a run.
#include "fp8/log/summary.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string_view>

#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "fp8/log/settings.h"
#include "or_null.h"
#include "statistics.h"

namespace fp8::log {
namespace {

// Time waiting for data over step time, for the steps that have both.
std::optional<double> wait_share(const Run& run) {
  const Values waits = run.find("data_wait_s"), times = run.find("step_s");
  double wait = 0, time = 0;
  for (std::size_t i = 0; i < std::min(waits.size(), times.size()); ++i) {
    if (!std::isfinite(waits[i]) || !std::isfinite(times[i])) continue;
    wait += waits[i];
    time += times[i];
  }
  if (!(time > 0)) return std::nullopt;
  return wait / time;
}

// Whether the run ended diverged, or its last step with targets has no finite loss.
bool ended_diverged(const Run& run) {
  if (run.reason == "diverged") return true;
  const Values loss = run.find("loss"), masked = run.find("masked");
  std::size_t n = run.steps.size();
  while (n > 0 && masked.size() >= n && masked[n - 1] > 0) --n;
  return n > 0 && (loss.size() < n || !std::isfinite(loss[n - 1]));
}

// Whether a checkpoint of a run is still there; true if the path of the run is not its folder.
bool is_there(const Run& run, const Save& save) {
  std::error_code ignored;
  if (save.name.empty() || !std::filesystem::is_directory(run.path, ignored)) return true;
  return std::filesystem::exists(std::filesystem::path(run.path) / save.name, ignored);
}

// The evaluations: last, best, and which checkpoint is best.
void summarize_evaluations(const Run& run, Summary& s) {
  if (run.evaluations.empty()) return;
  const Evaluation& last = run.evaluations.rbegin()->second;
  if (std::isfinite(last.loss)) s.eval_loss = last.loss;
  std::optional<double> lowest;  // of checkpoints
  for (const auto& [step, e] : run.evaluations) {
    if (!std::isfinite(e.loss) || e.targets != last.targets) continue;
    if (!s.best_eval_loss || e.loss < *s.best_eval_loss) s.best_eval_loss = e.loss, s.best_eval_step = step;
    const auto save = run.checkpoints.find(step);
    if (save == run.checkpoints.end() || !is_there(run, save->second)) continue;
    if (!lowest || e.loss < *lowest) lowest = e.loss, s.best_checkpoint = step;
  }
}

// "rank 8, alpha 16, rslora, dropout 0.1 on q_proj,v_proj"; empty for a run without adapters.
std::string adapters_of(const Run& run) {
  const json::Value rank = setting_value(run, "lora-rank"), alpha = setting_value(run, "lora-alpha"),
                    rslora = setting_value(run, "rslora"), dropout = setting_value(run, "lora-dropout"),
                    targets = setting_value(run, "lora-targets");
  if (!rank.is_number() || !(rank.as_double() > 0)) return "";
  std::string text = "rank " + json::dump(rank);
  if (alpha.is_number()) text += ", alpha " + format_short(alpha.as_double(), 6);
  if (rslora == json::Value(true)) text += ", rslora";
  if (dropout.is_number() && dropout.as_double() > 0) text += ", dropout " + format_short(dropout.as_double(), 6);
  std::string names;
  if (targets.is_array())
    for (const json::Value& t : targets.as_array())
      if (t.is_string()) names += (names.empty() ? "" : ",") + t.as_string();
  return text + (names.empty() ? "" : " on " + names);
}

// "history 16, most_recent, margin 3"; empty unless the last steps ran in the recipe delayed.
std::string delayed_of(const Run& run, const std::string& recipe) {
  const json::Value history = setting_value(run, "amax-history"), algorithm = setting_value(run, "amax-algo"),
                    margin = setting_value(run, "margin");
  if (recipe != "delayed" || !history.is_number()) return "";
  std::string text = "history " + json::dump(history);
  if (algorithm.is_string()) text += ", " + algorithm.as_string();
  if (margin.is_number() && margin.as_double() > 0) text += ", margin " + json::dump(margin);
  return text;
}

// Whether "0-3,8" has this rank.
bool has_rank(std::string_view ranks, std::int64_t rank) {
  while (!ranks.empty()) {
    const std::string_view range = ranks.substr(0, ranks.find(','));
    ranks.remove_prefix(std::min(ranks.size(), range.size() + 1));
    const std::size_t dash = std::min(range.find('-'), range.size());
    const auto first = parse_int64(range.substr(0, dash));
    const auto last = dash == range.size() ? first : parse_int64(range.substr(dash + 1));
    if (first && last && *first <= rank && rank <= *last) return true;
  }
  return false;
}

json::Array records_of_phases(const Summary& s) {
  json::Array phases;
  for (const auto& [step, phase] : s.phases) {
    phases.push_back(json::object({{"step", step},
                                   {"precision", text_or_null(phase.precision)},
                                   {"recipe", text_or_null(phase.recipe)},
                                   {"emulated", or_null(phase.emulated)}}));
  }
  return phases;
}

}  // namespace

std::optional<SlowRank> find_slow_rank(const Run& run) {
  constexpr std::size_t kMost = 50, kFewest = 8;
  constexpr double kShare = 0.9, kLag = 0.05, kLargest = 1e9;  // of ranks and lags that the program writes
  const Values ranks = run.find("slowest_rank"), lags = run.find("slowest_lag");
  std::map<double, std::vector<double>> lags_of;  // by rank
  std::size_t named = 0;
  for (std::size_t i = run.index_of(run.start); i < std::min(ranks.size(), lags.size()); ++i) {
    if (i + kMost < ranks.size() || !(ranks[i] >= 0 && ranks[i] < kLargest && std::abs(lags[i]) < kLargest)) continue;
    lags_of[ranks[i]].push_back(lags[i]);
    ++named;
  }
  if (named < kFewest) return std::nullopt;
  const auto& [rank, of_rank] = *std::ranges::max_element(lags_of, {}, [](const auto& r) { return r.second.size(); });
  const double lag = *quantile(of_rank, 0.5);
  if (static_cast<double>(of_rank.size()) < kShare * static_cast<double>(named) || lag < kLag) return std::nullopt;
  SlowRank slow{static_cast<std::int64_t>(rank), "", lag};
  const auto host = std::ranges::find_if(run.hosts, [&](const auto& h) { return has_rank(h.second, slow.rank); });
  if (host != run.hosts.end()) slow.host = host->first;
  return slow;
}

std::vector<std::string> summary_metrics() {
  return {"loss",       "step_s",         "data_wait_s",          "tokens_per_s",   "memory_peak_bytes",
          "sent_bytes", "fp8_flop_share", "fp8_flop_share_total", "fp4_flop_share", "fp4_flop_share_total",
          "aux_loss",   "z_loss",         "expert_load_max",      "expert_idle",    "expert_passes",
          "skipped",    "masked",         "slowest_rank",         "slowest_lag"};
}

std::size_t last_part(std::size_t n) {
  constexpr std::size_t kSteps = 50;
  return std::min(std::max((n + 9) / 10, kSteps), (n + 1) / 2);
}

namespace {

// Shares of FLOPs in FP8 and FP4.
void summarize_shares(const Run& run, Summary& s) {
  for (const auto& [member, name] : {std::pair(&Summary::fp8_flop_share, "fp8_flop_share"),
                                     {&Summary::fp8_flop_share_total, "fp8_flop_share_total"},
                                     {&Summary::fp4_flop_share, "fp4_flop_share"},
                                     {&Summary::fp4_flop_share_total, "fp4_flop_share_total"}})
    s.*member = mean(run.find(name));
}

}  // namespace

Summary summarize(const Run& run) {
  Summary s;
  s.path = run.path;
  s.name = run.name;
  s.planned_steps = run.planned_steps;
  if (!run.steps.empty()) s.steps = run.steps.back();
  if (!run.tokens.empty() && run.tokens.back() >= 0) s.tokens = run.tokens.back();
  const Values loss = run.find("loss"), rate = run.find("tokens_per_s");
  const std::size_t part = last_part(loss.size());
  s.final_loss = last(loss);
  s.best_loss = least(loss);
  s.mean_loss_last = mean(loss.last(part));
  s.last_steps = static_cast<std::int64_t>(part);
  summarize_evaluations(run, s);
  s.tokens_per_s = quantile(rate, 0.5);
  s.tokens_per_s_p10 = quantile(rate, 0.1);
  s.tokens_per_s_p90 = quantile(rate, 0.9);
  s.data_wait_share = wait_share(run);
  s.memory_peak_bytes = greatest(run.find("memory_peak_bytes"));
  summarize_shares(run, s);
  for (const auto& [member, name] : {std::pair(&Summary::sent_bytes, "sent_bytes"),
                                     {&Summary::aux_loss, "aux_loss"},
                                     {&Summary::z_loss, "z_loss"},
                                     {&Summary::expert_load_max, "expert_load_max"},
                                     {&Summary::expert_idle, "expert_idle"},
                                     {&Summary::expert_passes, "expert_passes"}}) {
    const Values values = run.find(name);
    s.*member = mean(values.last(std::min(part, values.size())));
  }
  for (const Phase& phase : run.phases) s.phases.emplace_back(run.steps[phase.first], phase);
  if (!run.phases.empty()) {
    s.precision = run.phases.back().precision;
    s.recipe = run.phases.back().recipe;
    s.emulated = run.phases.back().emulated;
  }
  if (!run.settings.empty()) {
    s.mesh = run.settings.back().mesh;
    if (const std::int64_t experts = run.settings.back().experts; experts > 0) s.experts = experts;
  }
  if (const json::Value documents = setting_value(run, "documents"); documents.is_string())
    s.documents = documents.as_string();
  s.adapters = adapters_of(run);
  s.delayed = delayed_of(run, s.recipe);
  for (const Settings& settings : run.settings) {
    for (const Change& change : settings.changed) s.changes.emplace_back(settings.step, change);
  }
  const Values skipped = run.find("skipped");
  for (std::size_t i = 0; i < skipped.size(); ++i) s.skipped += skipped[i] > 0 ? 1 : 0;
  const Values masked = run.find("masked");
  for (std::size_t i = 0; i < masked.size(); ++i) s.masked += masked[i] > 0 ? 1 : 0;
  s.slow_rank = find_slow_rank(run);
  s.checkpoints = static_cast<std::int64_t>(run.checkpoints.size());
  s.restarts = static_cast<std::int64_t>(run.restarts.size());
  s.warnings = run.warnings;
  s.finished = run.finished;
  s.reason = run.reason;
  s.diverged = ended_diverged(run);
  return s;
}

json::Value record(const Summary& s) {
  json::Array changes;
  for (const auto& [step, change] : s.changes) {
    changes.push_back(json::object({{"step", step}, {"name", change.name}, {"old", change.old}, {"new", change.now}}));
  }
  return json::object({{"type", "summary"},
                       {"path", s.path},
                       {"name", s.name},
                       {"steps", s.steps},
                       {"planned_steps", or_null(s.planned_steps)},
                       {"tokens", or_null(s.tokens)},
                       {"final_loss", or_null(s.final_loss)},
                       {"best_loss", or_null(s.best_loss)},
                       {"mean_loss_last", or_null(s.mean_loss_last)},
                       {"last_steps", s.last_steps},
                       {"eval_loss", or_null(s.eval_loss)},
                       {"best_eval_loss", or_null(s.best_eval_loss)},
                       {"best_eval_step", or_null(s.best_eval_step)},
                       {"best_checkpoint", or_null(s.best_checkpoint)},
                       {"tokens_per_s", or_null(s.tokens_per_s)},
                       {"tokens_per_s_p10", or_null(s.tokens_per_s_p10)},
                       {"tokens_per_s_p90", or_null(s.tokens_per_s_p90)},
                       {"data_wait_share", or_null(s.data_wait_share)},
                       {"memory_peak_bytes", or_null(s.memory_peak_bytes)},
                       {"sent_bytes", or_null(s.sent_bytes)},
                       {"fp8_flop_share", or_null(s.fp8_flop_share)},
                       {"fp8_flop_share_total", or_null(s.fp8_flop_share_total)},
                       {"fp4_flop_share", or_null(s.fp4_flop_share)},
                       {"fp4_flop_share_total", or_null(s.fp4_flop_share_total)},
                       {"aux_loss", or_null(s.aux_loss)},
                       {"z_loss", or_null(s.z_loss)},
                       {"expert_load_max", or_null(s.expert_load_max)},
                       {"expert_idle", or_null(s.expert_idle)},
                       {"expert_passes", or_null(s.expert_passes)},
                       {"experts", or_null(s.experts)},
                       {"precision", text_or_null(s.precision)},
                       {"recipe", text_or_null(s.recipe)},
                       {"emulated", or_null(s.emulated)},
                       {"mesh", text_or_null(s.mesh)},
                       {"documents", text_or_null(s.documents)},
                       {"adapters", text_or_null(s.adapters)},
                       {"delayed", text_or_null(s.delayed)},
                       {"slowest_rank", s.slow_rank ? json::Value(s.slow_rank->rank) : json::Value()},
                       {"slowest_host", text_or_null(s.slow_rank ? s.slow_rank->host : "")},
                       {"slowest_lag", s.slow_rank ? json::Value(s.slow_rank->lag) : json::Value()},
                       {"phases", records_of_phases(s)},
                       {"changes", std::move(changes)},
                       {"skipped", s.skipped},
                       {"masked", s.masked},
                       {"checkpoints", s.checkpoints},
                       {"restarts", s.restarts},
                       {"warnings", s.warnings},
                       {"finished", s.finished},
                       {"reason", text_or_null(s.reason)},
                       {"diverged", s.diverged}});
}

}  // namespace fp8::log
