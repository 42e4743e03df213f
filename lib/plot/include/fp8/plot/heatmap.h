/// A value by row and step, or by row and named column, as colours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/plot/plot.h"

namespace fp8::plot {

/// A part of a heatmap.
struct HeatPanel {
  std::string title{};  ///< above the panel
  /// [rows, columns]; NaN: no value; infinite: what was measured is not finite, which has a mark of its own;
  /// -infinite: the first colour.
  std::vector<double> values{};
};

/// Values by row and step.
struct Heatmap {
  std::string title{};                 ///< above all panels
  std::string label{};                 ///< of the colours
  std::vector<std::string> rows{};     ///< names; the first word is what rows belong to, such as the number of a layer
  std::vector<std::int64_t> steps{};   ///< first step of each column, and last step of the last
  std::vector<std::string> columns{};  ///< names of the columns; empty: they are steps
  std::vector<HeatPanel> panels{};     ///< beside one another
  double low = 0;                      ///< value of the first colour; lower values have it too
  double high = 1;                     ///< value of the last colour, the darkest; higher values have it too
};

/// Draws a heatmap into the existing file `path` by gnuplot, as gnuplot_plot() does: 1200 pixels wide, and as high as
/// its rows need.
void gnuplot_heatmap(const Heatmap& map, Image image, const std::string& path);

/// The number of columns of a map.
std::size_t column_count(const Heatmap& map);

/// Whether a cell with this value has a mark.
bool is_marked(double value);
/// Whether any cell of a map has a mark.
bool any_marked(const Heatmap& map);

/// Draws a heatmap as text at most `columns` wide, if that is wide enough for a character in each of its columns: a
/// panel below the other, with the values where there is space, else with a shade for each. Ends in a newline.
std::string terminal_heatmap(const Heatmap& map, int columns, bool colour);

}  // namespace fp8::plot
