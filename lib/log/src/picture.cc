// The curves of a plot.
#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/log/plot.h"
#include "marks.h"
#include "points.h"

namespace fp8::log {
namespace {

bool has(const Run& run, const std::string& metric) {
  if (metric == kEvalLoss) return !run.evaluations.empty();
  return std::find(run.metrics.begin(), run.metrics.end(), metric) != run.metrics.end();
}

bool counts_tokens(const Run& run) { return run.tokens.empty() || run.tokens.front() >= 0; }

}  // namespace

Image image_of(const std::string& path) {
  if (path.ends_with(".svg")) return Image::svg;
  if (path.ends_with(".png")) return Image::png;
  throw Error(path + ": the name of a plot must end in .svg or .png");
}

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

Picture picture(std::span<const Run> runs, const std::string& metric) {
  check_metric(runs, metric);
  Picture p;
  p.metric = metric;
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
