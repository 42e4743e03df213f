/// Curves of a metric over a run: in a terminal, or as SVG and PNG through gnuplot.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/log/run.h"

namespace fp8::log {

/// A point of a curve; y is NaN where the log has no finite value, which interrupts the line.
struct Point {
  double x = 0;  ///< tokens or steps
  double y = 0;  ///< value
};

/// A metric of one run, thinned to what a picture can show.
struct Curve {
  std::string name{};           ///< of the run, for the legend
  std::vector<Point> raw{};     ///< least and greatest of each group of steps, or every step when there are few
  std::vector<Point> smooth{};  ///< moving mean; empty when the steps are few or vary little
};

/// What a picture shows.
struct Picture {
  std::string metric{};         ///< name of the field
  bool by_tokens = true;        ///< x counts tokens; steps when a run does not count tokens
  std::vector<Curve> curves{};  ///< one a run, in their order
};

/// Which kind of file.
enum class Image : std::uint8_t { svg, png };

/// The kind of image that a file's name asks for; throws Error naming `path` when it ends in neither .svg nor .png.
Image image_of(const std::string& path);

/// Name of the field that holds the losses of evaluations: "eval_loss".
inline constexpr std::string_view kEvalLoss = "eval_loss";

/// Throws Error with the list of names that there are unless some run has values of `metric`, which is a field of step
/// records or kEvalLoss.
void check_metric(std::span<const Run> runs, const std::string& metric);

/// The curves of `metric`, for the runs that have it; they were read with it. Throws as check_metric().
Picture picture(std::span<const Run> runs, const std::string& metric);

/// The picture in braille characters, at most `columns` wide and `rows` high without title and legend; with several
/// curves and no colour, in letters. Ends in a newline. Deterministic.
std::string terminal_plot(const Picture& picture, int columns, int rows, bool colour);

/// Draws the picture into the existing file `path`, 900 x 506 pixels, by running gnuplot (from PATH) without a shell
/// and without the user's settings. Throws Error `gnuplot: reason` when it is not installed, fails or draws half, and
/// where `path` cannot be written.
void gnuplot_plot(const Picture& picture, Image image, const std::string& path);

}  // namespace fp8::log
