/// Stacked bars with a limit, and intervals above them, as SVG and PNG through gnuplot.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8/plot/plot.h"

namespace fp8::plot {

/// Number of colors of parts.
inline constexpr std::size_t kBarColors = 16;

/// A part of each bar.
struct BarPart {
  std::string name{};                  ///< for the legend
  std::vector<double> values{};        ///< one for each bar, at least 0
  std::optional<std::size_t> color{};  ///< number of its color, below kBarColors; nothing: its place among the parts
};

/// An interval for each bar, in a panel of its own above.
struct IntervalPanel {
  std::string label{};                              ///< label of the y axis
  std::vector<std::pair<double, double>> values{};  ///< low and high, one for each bar
};

/// Bars of stacked parts.
struct BarChart {
  std::string title{};                          ///< above all panels
  std::string label{};                          ///< label of the y axis of the bars
  std::vector<std::string> names{};             ///< names of the bars, from the left
  std::vector<BarPart> parts{};                 ///< from the bottom
  std::optional<double> limit{};                ///< a line at this height
  std::string limit_name{};                     ///< name of the line in the legend
  std::optional<IntervalPanel> intervals = {};  ///< nothing: no such panel
};

/// Draws the bars into the existing file `path` by gnuplot, as gnuplot_plot() does: 900 x 506 pixels, or 900 x 760 with
/// intervals.
void gnuplot_bars(const BarChart& chart, Image image, const std::string& path);

}  // namespace fp8::plot
