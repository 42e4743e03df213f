/// Gaps of several sides as dots and intervals, a row for each side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp8/plot/plot.h"

namespace fp8::plot {

/// The gaps of a side in one panel.
struct GapDots {
  std::vector<double> dots{};        ///< gaps of the pairs
  std::optional<double> mean{};      ///< over the pairs
  std::optional<double> interval{};  ///< half of its 95 % interval
};

/// Gaps of a loss.
struct GapDotsPanel {
  std::string title{};          ///< name of the loss
  std::vector<GapDots> rows{};  ///< one for each name of the chart
};

/// Gaps of several sides.
struct GapChart {
  std::string title{};                 ///< above all panels
  std::vector<std::string> names{};    ///< names of the rows, from the top
  std::vector<GapDotsPanel> panels{};  ///< beside one another, on one scale
  std::optional<double> gate{};        ///< a band of +- this gap
};

/// Draws the gaps into the existing file `path` by gnuplot, as gnuplot_plot() does: 900 pixels wide, and as high as the
/// rows need.
void gnuplot_gaps(const GapChart& chart, Image image, const std::string& path);

}  // namespace fp8::plot
