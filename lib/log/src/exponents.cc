// Histograms of exponents of the casts of a run or an inspection.
#include <algorithm>

#include "casts.h"
#include "fp8/base/error.h"
#include "fp8/log/tensors.h"

namespace fp8::log {
namespace {

// The smallest half of a subnormal spacing is 2^-10 in E4M3 and 2^-17 in E5M2; what is less becomes zero.
plot::ExponentRange exponent_range(const std::string& format) {
  return format == "e5m2" ? plot::ExponentRange{-18, -14, 15} : plot::ExponentRange{-11, -6, 8};
}

// Share of the elements whose codes are not normal.
double lost(const ExponentCounts& e, const plot::ExponentRange& range) {
  double outside = 0, all = 0;
  for (std::size_t i = 0; i < e.counts.size(); ++i) {
    const std::int64_t exponent = e.lowest + static_cast<std::int64_t>(i);
    all += e.counts[i];
    if (exponent < range.normal || exponent > range.largest) outside += e.counts[i];
  }
  return all > 0 ? outside / all : 0;
}

void add_shares(const ExponentCounts& e, std::int64_t lowest, double share, std::vector<double>& shares) {
  for (std::size_t i = 0; i < e.counts.size(); ++i)
    shares[static_cast<std::size_t>(e.lowest - lowest) + i] += share * e.counts[i];
}

double total(const ExponentCounts& e) {
  double sum = 0;
  for (const double n : e.counts) sum += n;
  return sum;
}

plot::ExponentPanel panel_of(const std::vector<const TensorSeries*>& casts) {
  const TensorSeries& first = *casts.front();
  plot::ExponentPanel panel;
  panel.title = first.operand + ", " + first.format;
  panel.range = exponent_range(first.format);
  std::int64_t end = first.exponents.lowest;
  panel.lowest = end;
  double elements = 0;
  const TensorSeries* worst = &first;
  for (const TensorSeries* s : casts) {
    const ExponentCounts& e = s->exponents;
    panel.lowest = std::min(panel.lowest, e.lowest);
    end = std::max(end, e.lowest + static_cast<std::int64_t>(e.counts.size()));
    elements += total(e);
    if (lost(e, panel.range) > lost(worst->exponents, panel.range)) worst = s;
  }
  panel.shares.assign(static_cast<std::size_t>(end - panel.lowest), 0);
  panel.worst_shares = panel.shares;
  for (const TensorSeries* s : casts) add_shares(s->exponents, panel.lowest, 1 / elements, panel.shares);
  add_shares(worst->exponents, panel.lowest, 1 / total(worst->exponents), panel.worst_shares);
  panel.worst = short_name(worst->linear);
  return panel;
}

}  // namespace

plot::ExponentChart exponent_chart(const TensorRun& run) {
  check_one_recipe(run);
  plot::ExponentChart chart;
  const std::vector<CastSeries> all = casts_of(run);
  for (const char* operand : {"input", "weight", "grad_output"}) {
    for (const char* format : {"e4m3", "e5m2"}) {
      std::vector<const TensorSeries*> casts;
      for (const CastSeries& c : all)
        if (c.series->operand == operand && c.series->format == format && total(c.series->exponents) > 0)
          casts.push_back(c.series);
      if (!casts.empty()) chart.panels.push_back(panel_of(casts));
    }
  }
  if (chart.panels.empty()) throw Error(run.path + ": no record has a histogram of scaled elements" + reason_of(run));
  chart.title = "exponents of scaled elements at step " + std::to_string(run.steps.back()) + ", " +
                run.series.front().recipe + "; bars: all linears, line: the one with the fewest normal codes";
  return chart;
}

}  // namespace fp8::log
