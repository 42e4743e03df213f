/// Histograms of the exponents of scaled elements against the range of an FP8 format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/plot/plot.h"

namespace fp8::plot {

/// Where a format ends, as exponents floor(log2|x|).
struct ExponentRange {
  std::int64_t zero = 0;     ///< the largest exponent whose elements become zero
  std::int64_t normal = 0;   ///< the smallest exponent of normal codes; between both codes are subnormal
  std::int64_t largest = 0;  ///< exponent of the largest value
};

/// A histogram of several operands together, and of the one of them that has the fewest normal codes.
struct ExponentPanel {
  std::string title{};               ///< which operands, and their format
  ExponentRange range{};             ///< range of the format
  std::int64_t lowest = 0;           ///< exponent of the first share
  std::vector<double> shares{};      ///< of the nonzero elements of all operands
  std::string worst{};               ///< name of the one with the fewest normal codes
  std::vector<double> worst_shares;  ///< of its nonzero elements
};

/// Panels.
struct ExponentChart {
  std::string title{};                  ///< above all panels
  std::vector<ExponentPanel> panels{};  ///< beside one another
};

/// Draws the histograms into the existing file `path` by gnuplot, as gnuplot_plot() does: 1200 x 460 pixels.
void gnuplot_exponents(const ExponentChart& chart, Image image, const std::string& path);

/// Draws the histograms of all operands together as text at most `columns` wide: a row for each exponent, a bar for
/// each panel, shaded by the kind of code. Ends in a newline.
std::string terminal_exponents(const ExponentChart& chart, int columns);

}  // namespace fp8::plot
