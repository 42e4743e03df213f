/// Plots of a metric over a run: in a terminal, or as SVG and PNG through gnuplot.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/log/run.h"

namespace fp8::log {

/// A point of a curve. Where the log has no finite value, y is NaN and the line is interrupted.
struct Point {
  double x = 0;  ///< tokens or steps
  double y = 0;  ///< value
};

/// A metric of one run, downsampled to the resolution of a plot.
struct Curve {
  std::string name{};           ///< name of the run, for the legend
  std::vector<Point> raw{};     ///< minimum and maximum of each group of steps, or every step when there are few
  std::vector<Point> smooth{};  ///< moving mean; empty for few steps and for curves with little noise
};

/// Data of one plot.
struct Picture {
  std::string metric{};         ///< name of the field
  bool by_tokens = true;        ///< x is tokens; steps when a run lacks token counts
  std::vector<Curve> curves{};  ///< one per run, in order
};

/// Image format.
enum class Image : std::uint8_t { svg, png };

/// Image format by the extension of `path`. Throws Error naming `path` when it ends in neither .svg nor .png.
Image image_of(const std::string& path);

/// Metric name for the losses of evaluations: "eval_loss".
inline constexpr std::string_view kEvalLoss = "eval_loss";

/// Throws Error listing the available metrics unless some run has values of `metric`, a field of step records or
/// kEvalLoss.
void check_metric(std::span<const Run> runs, const std::string& metric);

/// The curves of `metric`, for the runs that have it. The runs must have been read with `metric`. Throws as
/// check_metric().
Picture picture(std::span<const Run> runs, const std::string& metric);

/// Draws the plot in braille characters, at most `columns` wide and `rows` high without title and legend. Several
/// curves without colour are drawn in letters. Ends in a newline. Deterministic.
std::string terminal_plot(const Picture& picture, int columns, int rows, bool colour);

/// Draws the plot into the existing file `path`, 900 x 506 pixels, by running gnuplot (from PATH) without a shell and
/// without the user's settings. Throws Error `gnuplot: reason` when gnuplot is not installed, fails or writes a
/// truncated image, and Error when `path` cannot be written.
void gnuplot_plot(const Picture& picture, Image image, const std::string& path);

}  // namespace fp8::log
