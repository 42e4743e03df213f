// The curves of a plot.
#include "fp8/log/picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

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
  constexpr std::array<Label, 19> kLabels = {{{"loss", "loss (nats per token)"},
                                              {"eval_loss", "evaluation loss (nats per token)"},
                                              {"grad_norm", "gradient norm before clipping"},
                                              {"lr", "learning rate"},
                                              {"tokens_per_s", "tokens per second"},
                                              {"step_s", "seconds per step"},
                                              {"data_wait_s", "seconds waiting for data, per step"},
                                              {"memory_peak_bytes", "peak memory"},
                                              {"sent_bytes", "bytes sent by all ranks, per step"},
                                              {"fp8_flop_share", "share of the linears' FLOPs in FP8"},
                                              {"fp8_flop_share_total", "share of all matmul FLOPs in FP8"},
                                              {"fp4_flop_share", "share of the linears' FLOPs in FP4"},
                                              {"aux_loss", "loss that balances experts, sum over layers"},
                                              {"z_loss", "mean square of the routers' log-sum, sum over layers"},
                                              {"expert_load_max", "largest over mean load of an expert"},
                                              {"expert_idle", "experts without rows, of all layers"},
                                              {"expert_passes", "passes of a layer of experts"},
                                              {"update_rms_linear", "root mean square of updates, linears of layers"},
                                              {"update_rms_embedding", "root mean square of updates, embedding"}}};
  const auto* at = std::find_if(kLabels.begin(), kLabels.end(), [&](const Label& l) { return l.metric == metric; });
  return at == kLabels.end() ? metric : std::string(at->text);
}

bool counts_tokens(const Run& run) { return run.tokens.empty() || run.tokens.front() >= 0; }

// Adds a mark where the finite values of a curve end before its points do.
void mark_divergence(const Points& points, std::vector<Mark>& marks) {
  std::size_t end = points.size();
  while (end > 0 && !std::isfinite(points[end - 1].y)) --end;
  if (end == 0 || end == points.size()) return;
  const Mark mark{.x = points[end].x, .kind = MarkKind::setting, .text = "not finite"};
  marks.insert(std::ranges::upper_bound(marks, mark.x, {}, &Mark::x), mark);
}

// The curves of one value of a setting, or of several, in one colour.
struct Grouping {
  std::string setting{};              // empty where the values say what they are
  std::vector<std::string> values{};  // one for each run
};

// Settings that do not tell sides apart: runs of one side have different seeds, and may have different machines.
constexpr std::array<std::string_view, 4> kNoSide = {"seed", "device", "cpu_isa", "version"};

std::string value_of(const Run& run, const std::string& setting) {
  const auto texts = setting_texts(run, setting, false);
  return texts.empty() ? "" : texts.back().second;
}

// The first grouping by which few colours tell many curves apart: by all settings that differ between sides, precision
// and recipe, each setting that differs, the seed.
std::optional<Grouping> grouping_of(std::span<const Run* const> runs) {
  std::vector<Run> settings;
  Grouping by_precision;
  for (const Run* run : runs) {
    settings.emplace_back().settings = run->settings;
    const Phase phase = run->phases.empty() ? Phase{} : run->phases.front();
    by_precision.values.push_back(phase.precision + (phase.recipe.empty() ? "" : " " + phase.recipe));
  }
  std::vector<std::string> names = differing_settings(settings);
  std::ranges::stable_partition(names, [](const std::string& name) { return name != "seed"; });
  Grouping by_side = by_precision;
  std::vector<Grouping> each;
  for (const std::string& name : names) {
    Grouping& g = each.emplace_back(Grouping{name, {}});
    for (const Run& run : settings) g.values.push_back(value_of(run, name));
    if (name == "precision" || name == "recipe" || std::ranges::find(kNoSide, name) != kNoSide.end()) continue;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (g.values[i].empty() || g.values[i] == "not set") continue;
      by_side.values[i] += (by_side.values[i].empty() ? "" : ", ") + name + " " + g.values[i];
    }
  }
  each.insert(each.begin(), {std::move(by_side), std::move(by_precision)});
  for (Grouping& g : each) {
    const std::set<std::string> different(g.values.begin(), g.values.end());
    if (different.size() > 1 && different.size() <= plot::kColours) return std::move(g);
  }
  return std::nullopt;
}

bool before(const std::string& a, const std::string& b) {
  const std::optional<double> x = parse_double(a), y = parse_double(b);
  return x && y ? *x < *y : a < b;
}

// Colours many curves by a setting, or, if none does, the best ones.
void group_curves(std::span<const Run> runs, const std::string& metric, plot::Picture& p) {
  p.ranked = true;
  std::vector<const Run*> drawn;
  for (const Run& run : runs)
    if (has(run, metric)) drawn.push_back(&run);
  const std::optional<Grouping> grouping = grouping_of(drawn);
  if (!grouping) {
    std::map<const plot::Curve*, std::size_t> place;
    for (const plot::Curve* curve : plot::ranking_of(p)) place.emplace(curve, place.size());
    for (plot::Curve& curve : p.curves) curve.style = std::min(place.at(&curve), plot::kColours - 1);
    return;
  }
  std::vector<std::string> values = grouping->values;
  std::ranges::sort(values, before);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  for (const std::string& value : values) {
    const std::string name = grouping->setting.empty() ? value : grouping->setting + " " + value;
    p.groups.push_back({value.empty() ? "unknown" : name, p.groups.size()});
  }
  for (std::size_t i = 0; i < p.curves.size(); ++i) {
    p.curves[i].group = static_cast<std::size_t>(std::ranges::find(values, grouping->values[i]) - values.begin());
    p.curves[i].style = p.curves[i].group;
  }
}

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
    p.curves.back().end = metric == kEvalLoss ? last_of(points) : end_of(points);
    p.curves.back().style = p.curves.size() - 1;
    p.curves.back().marks = marks_of(run, p.by_tokens);
    mark_divergence(points, p.curves.back().marks);
  }
  p.most_is_best = metric == "tokens_per_s" || metric == "mfu" || metric == "model_tflops";
  if (p.curves.size() > plot::kMostNamed) group_curves(runs, metric, p);
  return p;
}

}  // namespace fp8::log
