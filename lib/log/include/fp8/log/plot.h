/// Plots of a metric over a run: in a terminal, or as SVG and PNG through gnuplot.
#pragma once

#include <cstdint>
#include <optional>
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

/// What happened at a mark.
enum class MarkKind : std::uint8_t { restart, phase, setting };

/// A point of a run at which something changed.
struct Mark {
  double x = 0;  ///< tokens or steps
  MarkKind kind =
      MarkKind::restart;  ///< a change of precision comes before one of a setting, and that before a restart
  std::string text{};     ///< the new precision, or the settings that changed; empty for a mere restart
};

/// Number of colours. Curve::style is a colour plus kColours times a pattern of dashes.
inline constexpr std::size_t kColours = 7;

/// A metric of one run, downsampled to the resolution of a plot.
struct Curve {
  std::string name{};           ///< name of the run, for the legend
  std::vector<Point> raw{};     ///< minimum and maximum of each group of steps, or every step when there are few
  std::vector<Point> smooth{};  ///< moving mean; empty for few steps and for curves with little noise
  std::size_t style = 0;        ///< see kColours; curves with different styles look different
  char letter = 0;              ///< letter in a terminal without colour; 0: by its position
  std::vector<Mark> marks{};    ///< in order of x
};

/// The gap between the sides of a comparison, B - A.
struct GapPanel {
  std::string band_name{};          ///< what the band is
  std::vector<Point> mean{};        ///< moving mean of the gap, over the pairs
  std::vector<Point> low{};         ///< lower end of the band; NaN where it is unknown
  std::vector<Point> high{};        ///< upper end of the band
  std::optional<double> gate = {};  ///< a line at +- this gap
};

/// Data of one plot.
struct Picture {
  std::string metric{};           ///< name of the field
  bool by_tokens = true;          ///< x is tokens; steps when a run lacks token counts
  std::vector<Curve> curves{};    ///< one per run, in order
  std::optional<GapPanel> gap{};  ///< a second panel below
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

/// Curves of the runs of both sides of a comparison, with the panel of the gap, if `metric` is a field of step records.
/// The band of three pairs or more is the 95 % interval of the gap at each point; that of fewer is twice the step
/// noise. Throws as check_metric() and as compare() of several runs.
Picture comparison_picture(std::span<const Run> a, std::span<const Run> b, const std::string& metric,
                           std::optional<double> gate);

/// Draws the plot in braille characters, at most `columns` wide and `rows` high without title and legend. Several
/// curves without colour are drawn in letters. Ends in a newline. Deterministic.
std::string terminal_plot(const Picture& picture, int columns, int rows, bool colour);

/// Draws the plot into the existing file `path`, 900 x 506 pixels, or 900 x 700 with the panel of a gap, by running
/// gnuplot (from PATH) without a shell and without the user's settings. Throws Error `gnuplot: reason` when gnuplot is
/// not installed, fails or writes a truncated image, and Error when `path` cannot be written.
void gnuplot_plot(const Picture& picture, Image image, const std::string& path);

}  // namespace fp8::log
