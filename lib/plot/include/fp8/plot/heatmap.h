/// A value by row and step as colours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/plot/plot.h"

namespace fp8::plot {

/// A part of a heatmap.
struct HeatPanel {
  std::string title{};           ///< above the panel
  std::vector<double> values{};  ///< [rows, columns]; NaN: no value
};

/// Values by row and step.
struct Heatmap {
  std::string title{};                ///< above all panels
  std::string label{};                ///< label of the colours
  std::vector<std::string> rows{};    ///< names; the first word is what rows belong to, such as the number of a layer
  std::vector<std::int64_t> steps{};  ///< first step of each column, and last step of the last
  std::vector<HeatPanel> panels{};    ///< beside one another
  double low = 0;                     ///< value of the first colour; lower values have it too
  double high = 1;                    ///< value of the last colour; higher values have it too
  bool low_is_bad = false;            ///< whether low values are dark, else high ones
};

/// Draws a heatmap into the existing file `path` by gnuplot, as gnuplot_plot() does: 1200 pixels wide, and as high as
/// its rows need.
void gnuplot_heatmap(const Heatmap& map, Image image, const std::string& path);

}  // namespace fp8::plot
