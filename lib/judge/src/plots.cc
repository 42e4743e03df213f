#include "plots.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/plot/heatmap.h"

namespace fp8::judge {
namespace {

constexpr double kLowest = -12, kHighest = 0;  // log10 of the k3 of the first and the last colour

// Appends log10 of the mean k3 of the bins of a candidate to `values`, NaN where a bin has no tokens.
void append(const std::vector<Bin>& bins, std::size_t count, std::vector<double>& values) {
  for (std::size_t i = 0; i < count; ++i) {
    const bool any = i < bins.size() && bins[i].tokens > 0;
    values.push_back(any ? std::log10(std::max(bins[i].k3 / static_cast<double>(bins[i].tokens), 1e-300))
                         : std::numeric_limits<double>::quiet_NaN());
  }
}

}  // namespace

void check_plot(const JudgeConfig& config) {
  if (config.plot.empty()) return;
  (void)plot::image_of(config.plot);
  std::vector<std::string> inputs = config.rollouts;
  inputs.push_back(config.model);
  inputs.insert(inputs.end(), config.also.begin(), config.also.end());
  check_output(config.plot, config.force, inputs);
}

void plot_candidates(const std::vector<Candidate>& candidates, const std::string& path, bool force) {
  plot::Heatmap map{.title = "KL of rollouts from each candidate (k3), by position and by probability of the token",
                    .label = "log10 k3",
                    .low = kLowest,
                    .high = kHighest};
  const std::vector<Bin>& positions = candidates.front().figures.by_position();
  const std::vector<Bin>& probabilities = candidates.front().figures.by_probability();
  for (const Bin& b : positions) map.columns.push_back("from " + format_short(b.from, 6));
  for (const Bin& b : probabilities) map.columns.push_back("p < " + format_short(b.to, 4));
  plot::HeatPanel panel;
  for (const Candidate& c : candidates) {
    map.rows.push_back(c.name() + (c.other_checkpoint ? " " + c.checkpoint : ""));
    append(c.figures.by_position(), positions.size(), panel.values);
    append(c.figures.by_probability(), probabilities.size(), panel.values);
  }
  map.panels.push_back(std::move(panel));
  AtomicFile file(path, force);
  plot::gnuplot_heatmap(map, plot::image_of(path), file.path());
  file.commit();
}

}  // namespace fp8::judge
