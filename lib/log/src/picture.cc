// The curves of a plot.
#include "fp8/log/picture.h"

#include <algorithm>
#include <array>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "marks.h"
#include "points.h"

namespace fp8::log {
namespace {

bool has(const Run& run, const std::string& metric) {
  if (metric == kEvalLoss) return !run.evaluations.empty();
  return std::find(run.metrics.begin(), run.metrics.end(), metric) != run.metrics.end();
}

// Label of the y axis.
std::string axis_label(const std::string& metric) {
  struct Label {
    std::string_view metric;
    std::string_view text;
  };
  constexpr std::array<Label, 10> kLabels = {{{"loss", "loss (nats per token)"},
                                              {"eval_loss", "evaluation loss (nats per token)"},
                                              {"grad_norm", "gradient norm before clipping"},
                                              {"lr", "learning rate"},
                                              {"tokens_per_s", "tokens per second"},
                                              {"step_s", "seconds per step"},
                                              {"data_wait_s", "seconds waiting for data, per step"},
                                              {"memory_peak_bytes", "peak memory"},
                                              {"fp8_flop_share", "share of the linears' FLOPs in FP8"},
                                              {"fp8_flop_share_total", "share of all matmul FLOPs in FP8"}}};
  const auto* at = std::find_if(kLabels.begin(), kLabels.end(), [&](const Label& l) { return l.metric == metric; });
  return at == kLabels.end() ? metric : std::string(at->text);
}

bool counts_tokens(const Run& run) { return run.tokens.empty() || run.tokens.front() >= 0; }

}  // namespace

void check_metric(std::span<const Run> runs, const std::string& metric) {
  if (std::any_of(runs.begin(), runs.end(), [&](const Run& run) { return has(run, metric); })) return;
  std::vector<std::string> names = metrics_of(runs);
  if (std::any_of(runs.begin(), runs.end(), [](const Run& run) { return !run.evaluations.empty(); })) {
    names.emplace_back(kEvalLoss);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + excerpt(name);
  if (metric == kEvalLoss) throw Error(metric + ": no run has evaluations, see eval-every in fp8-step(1)");
  throw Error("no metric \"" + excerpt(metric) + "\"; available: " + (list.empty() ? "none" : list));
}

plot::Picture picture(std::span<const Run> runs, const std::string& metric) {
  check_metric(runs, metric);
  plot::Picture p;
  p.metric = metric;
  p.label = axis_label(metric);
  p.bytes = metric.ends_with("_bytes");
  p.by_tokens = std::all_of(runs.begin(), runs.end(), counts_tokens);
  for (const Run& run : runs) {
    if (!has(run, metric)) continue;
    const Points points(run, metric, p.by_tokens);
    p.curves.push_back({.name = run.name, .raw = thinned(points), .smooth = smoothed(points)});
    p.curves.back().style = p.curves.size() - 1;
    p.curves.back().marks = marks_of(run, p.by_tokens);
  }
  return p;
}

}  // namespace fp8::log
