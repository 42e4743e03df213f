// Layers x steps: which cell has which value, and the picture.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/log/tensors.h"
#include "gnuplot.h"

namespace fp8::log {
namespace {

constexpr int kWidth = 1200;                      // pixels
constexpr int kTop = 70, kBottom = 70;            // heights above and below the cells
constexpr int kMargins = kTop + kBottom;          // both
constexpr int kLowest = 360;                      // height of the cells
constexpr int kHighest = 1300;                    // of the cells
constexpr int kLabelHeight = 15;                  // least distance of two labels
constexpr double kLowSqnr = 10, kUsualSqnr = 32;  // dB; the least range of the colours
constexpr double kHighSqnr = 40;                  // dB; more has the same colour

bool of_products(std::string_view metric) { return metric == "relative_error"; }

// "3 q_proj" for model.layers.3.self_attn.q_proj.weight; else the name of the module.
std::string short_name(const std::string& linear) {
  std::string name = linear;
  if (name.ends_with(".weight")) name.resize(name.size() - 7);
  std::string last = name.substr(name.rfind('.') + 1);
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return last;
  const std::string rest = name.substr(kLayers.size());
  return rest.substr(0, rest.find('.')) + " " + last;
}

// How a metric is shown.
struct Scale {
  std::string_view metric;
  std::string_view label;
  double factor = 1;         // of the values
  bool logarithmic = false;  // log10 of the values
  bool low_is_bad = false;
};

constexpr std::array<Scale, kTensorMetrics.size()> kScales = {
    {{"amax", "log10 of the amax", 1, true},
     {"scale", "log10 of the scale", 1, true},
     {"scale_max", "log10 of the largest scale", 1, true},
     {"underflow_share", "nonzero elements that underflow (%)", 100},
     {"subnormal_share", "nonzero elements with subnormal codes (%)", 100},
     {"saturated_share", "nonzero elements that saturate (%)", 100},
     {"sqnr_db", "SQNR of the cast (dB)", 1, false, true},
     {"dynamic_range", "dynamic range (log2)"},
     {"relative_error", "relative error of the product (%)", 100}}};

const Scale& scale_of(std::string_view metric) { return *std::ranges::find(kScales, metric, &Scale::metric); }

double shown(const Scale& scale, double v) {
  if (std::isnan(v)) return v;
  if (scale.logarithmic) return v > 0 ? std::log10(v) : NAN;
  if (scale.low_is_bad) return std::min(v, kHighSqnr);
  return scale.factor * v;
}

// The range of the colours: all finite values; from 0 for shares; for SQNRs at least that of usual ones, so that those
// of E5M2, which are 6 dB below those of E4M3, do not look bad.
std::pair<double, double> range_of(const Heatmap& map, const Scale& scale) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const HeatPanel& panel : map.panels) {
    for (const double v : panel.values) {
      const double s = shown(scale, v);
      if (!std::isfinite(s)) continue;
      low = std::min(low, s);
      high = std::max(high, s);
    }
  }
  if (low > high) return {0, 1};
  if (scale.factor == 100) low = 0;
  if (scale.low_is_bad) return {std::min(low, kLowSqnr), std::max(high, kUsualSqnr)};
  return {low, high > low ? high : low + 1};
}

bool any_missing(const Heatmap& map) {
  return std::ranges::any_of(map.panels, [](const HeatPanel& panel) {
    return std::ranges::any_of(panel.values, [](double v) { return std::isnan(v); });
  });
}

// How often a row or a column is in the data: gnuplot draws an image only from two rows and two columns on.
std::size_t repeats(std::size_t count) { return count == 1 ? 2 : 1; }

std::string data_of(const Heatmap& map, const Scale& scale, std::pair<double, double> range) {
  const std::size_t columns = map.steps.size() - 1, rows = map.rows.size();
  std::string data;
  for (std::size_t p = 0; p < map.panels.size(); ++p) {
    data += "$panel" + std::to_string(p) + " << END_OF_DATA\n";
    for (std::size_t r = 0; r < rows * repeats(rows); ++r) {
      for (std::size_t c = 0; c < columns * repeats(columns); ++c) {
        const double v = shown(scale, map.panels[p].values[r / repeats(rows) * columns + c / repeats(columns)]);
        data += (std::isnan(v) ? "NaN" : format_short(std::clamp(v, range.first, range.second), 6)) + " ";
      }
      data += "\n";
    }
    data += "END_OF_DATA\n";
  }
  return data;
}

// How the cells are drawn. Renderers of SVG interpolate an image, so there each cell is a rectangle; between rectangles
// of a PNG there are faint lines.
std::string cells_of(const Heatmap& map, Image image) {
  const auto centre = [](const char* column, std::size_t count) {
    return repeats(count) == 1 ? column : std::string("($") + column + "/2.0-0.25)";
  };
  return centre("1", map.steps.size() - 1) + ":" + centre("2", map.rows.size()) + ":3 with image" +
         (image == Image::svg ? " pixels\n" : "\n");
}

// Labels of the rows: each, or, where there is no space for that, the first of a layer.
std::string row_tics(const Heatmap& map, int height) {
  const double each = static_cast<double>(height) / static_cast<double>(map.rows.size());
  const auto layer_of = [&](std::size_t row) { return map.rows[row].substr(0, map.rows[row].find(' ')); };
  std::string tics;
  double last = -kLabelHeight;
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    const double y = each * static_cast<double>(r);
    const bool begins = r == 0 || layer_of(r) != layer_of(r - 1);
    if (y - last < kLabelHeight || (each < kLabelHeight && !begins)) continue;
    tics += (tics.empty() ? "" : ", ") + quoted(map.rows[r]) + " " + std::to_string(r);
    last = y;
  }
  return "set ytics (" + tics + ")\n";
}

std::string step_tics(const Heatmap& map) {
  constexpr std::size_t kMost = 5;
  const std::size_t columns = map.steps.size() - 1, every = (columns + kMost - 1) / kMost;
  std::string tics;
  for (std::size_t c = 0; c < columns; c += every)
    tics += (tics.empty() ? "\"" : ", \"") + std::to_string(map.steps[c]) + "\" " + std::to_string(c);
  return "set xtics (" + tics + ")\n";
}

std::string script_of(const Heatmap& map, Image image) {
  const Scale& scale = scale_of(map.metric);
  const auto range = range_of(map, scale);
  const auto rows = static_cast<double>(map.rows.size()), columns = static_cast<double>(map.steps.size() - 1);
  const int height = std::clamp(static_cast<int>(rows) * (kLabelHeight + 4), kLowest, kHighest);
  std::size_t longest = 0;
  for (const std::string& row : map.rows) longest = std::max(longest, row.size());
  const double left = (24 + 9.0 * static_cast<double>(longest)) / kWidth, right = 1 - 135.0 / kWidth,
               gap = 14.0 / kWidth;
  const auto panels = static_cast<double>(map.panels.size());
  const double width = (right - left - gap * (panels - 1)) / panels;
  const double top = 1 - static_cast<double>(kTop) / (height + kMargins),
               bottom = static_cast<double>(kBottom) / (height + kMargins);
  const auto at = [](const char* side, double x) {
    return std::string("set ") + side + "margin at screen " + format_short(x, 6) + "\n";
  };
  std::string script =
      terminal_of(image, kWidth, height + kMargins) + data_of(map, scale, range) + "set palette defined (" +
      (scale.low_is_bad ? "0 '#67000d', 0.25 '#d7301f', 0.5 '#fc8d59', 0.75 '#fdcc8a', 1 '#fff7dc'"
                        : "0 '#fff7dc', 0.25 '#fdcc8a', 0.5 '#fc8d59', 0.75 '#d7301f', 1 '#67000d'") +
      ")\nset cbrange [" + format_double(range.first) + ":" + format_double(range.second) +
      "]\nset border 15 lw 1 lc rgb '#909090'\nset tics out nomirror scale 0.4 textcolor rgb '#202020'\nunset key\n" +
      "set object 1 rectangle from graph 0,0 to graph 1,1 behind fc rgb '#d0d0d0' fs solid noborder\n" +
      "set xrange [-0.5:" + format_short(columns - 0.5, 8) + "]\nset yrange [" + format_short(rows - 0.5, 8) +
      ":-0.5]\n" + step_tics(map) + "set multiplot\n" + at("t", top) + at("b", bottom) + "set label 1 " +
      quoted(std::string(scale.label) + ", layers x steps" +
             (of_products(map.metric) ? "" : "; the worst GEMM of each linear") +
             (any_missing(map) ? "; grey: no value" : "")) +
      " at screen 0.5," + format_short(1 - 18.0 / (height + kMargins), 6) + " center textcolor rgb '#202020'\n";
  for (std::size_t p = 0; p < map.panels.size(); ++p) {
    const double from = left + static_cast<double>(p) * (width + gap);
    const bool last = p + 1 == map.panels.size();
    script += at("l", from) + at("r", from + width) + "set title " + quoted(map.panels[p].title) +
              " offset 0,-0.6 textcolor rgb '#202020'\nset xlabel 'step' offset 0,0.3 textcolor rgb '#202020'\n" +
              (p == 0 ? row_tics(map, height) : "unset ytics\nunset label 1\n") +
              (last ? "set colorbox user origin screen " + format_short(right + 16.0 / kWidth, 6) + "," +
                          format_short(bottom, 6) + " size screen " + format_short(18.0 / kWidth, 6) + "," +
                          format_short(top - bottom, 6) + " noborder\nset cblabel " + quoted(std::string(scale.label)) +
                          " offset 0.6,0 textcolor rgb '#202020'\n"
                    : "unset colorbox\n") +
              "plot $panel" + std::to_string(p) + " matrix using " + cells_of(map, image);
  }
  return script + "unset multiplot\n";
}

// The names of panels, in order.
std::vector<std::string> panels_of(const std::string& metric) {
  if (of_products(metric)) return {"forward", "dgrad", "wgrad"};
  return {"input", "weight", "grad_output"};
}

}  // namespace

Heatmap heatmap(const TensorRun& run, std::size_t metric, std::size_t columns) {
  Heatmap map;
  map.metric = kTensorMetrics.at(metric);
  std::map<std::string, std::size_t> row_of;
  for (const TensorSeries& series : run.series) {
    if (row_of.try_emplace(series.linear, map.rows.size()).second) map.rows.push_back(short_name(series.linear));
  }
  const std::size_t each =
      std::max<std::size_t>(1, (run.steps.size() + columns - 1) / std::max<std::size_t>(1, columns));
  for (std::size_t s = 0; s < run.steps.size(); s += each) map.steps.push_back(run.steps[s]);
  const std::size_t width = map.steps.size();
  map.steps.push_back(run.steps.back());
  bool any = false;
  for (const std::string& name : panels_of(map.metric)) {
    HeatPanel panel{name, std::vector<double>(map.rows.size() * width, NAN)};
    bool used = false;
    for (const TensorSeries& series : run.series) {
      if ((of_products(map.metric) ? series.gemm : series.operand) != name) continue;
      for (std::size_t i = 0; i < series.at.size(); ++i) {
        const double v = series.values[i].at(metric);
        double& cell = panel.values[row_of.at(series.linear) * width + series.at[i] / each];
        if (std::isnan(v)) continue;
        used = true;
        if (std::isnan(cell) || (map.metric == "sqnr_db" ? v < cell : v > cell)) cell = v;
      }
    }
    if (used) map.panels.push_back(std::move(panel));
    any = any || used;
  }
  if (!any) throw Error(run.path + ": no record has a value of " + map.metric);
  return map;
}

void gnuplot_heatmap(const Heatmap& map, Image image, const std::string& path) {
  run_gnuplot(script_of(map, image), image, path);
}

}  // namespace fp8::log
