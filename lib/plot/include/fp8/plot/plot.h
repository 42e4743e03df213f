/// Plots of curves over tokens or steps: in a terminal, or as SVG and PNG through gnuplot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fp8::plot {

/// A point of a curve. Where the log has no finite value, y is NaN and the line is interrupted.
struct Point {
  double x = 0;  ///< tokens or steps
  double y = 0;  ///< value
};

/// The event at a mark.
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

/// Most curves that a legend names. More are coloured in groups, and a ranking names them.
inline constexpr std::size_t kMostNamed = 8;

/// Most points that are drawn as points.
inline constexpr std::size_t kFewPoints = 30;

/// A metric of one run, downsampled to the resolution of a plot.
struct Curve {
  std::string name{};           ///< name of the run, for the legend
  std::vector<Point> raw{};     ///< minimum and maximum of each group of steps, or every step when there are few
  std::vector<Point> smooth{};  ///< moving mean; empty for few steps and for curves with little noise
  std::size_t style = 0;        ///< see kColours; curves with different styles look different
  std::size_t group = 0;        ///< index of its group, if the picture has any
  double end = 0;               ///< mean of its last values without spikes; NaN where they are not finite
  char letter = 0;              ///< letter in a terminal without colour; 0: by its position
  std::vector<Mark> marks{};    ///< in order of x
};

/// The gap of one side to the first side of a comparison.
struct GapCurve {
  std::string name{};         ///< for the legend
  std::size_t style = 0;      ///< like the style of a curve; the only gap of a panel is black
  std::vector<Point> mean{};  ///< moving mean of the gap, over the pairs
  std::vector<Point> low{};   ///< lower end of the band; NaN where it is unknown
  std::vector<Point> high{};  ///< upper end of the band
};

/// The gaps between the sides of a comparison.
struct GapPanel {
  std::string label{};              ///< label of the y axis
  std::string band_name{};          ///< name of the bands in the legend
  std::vector<GapCurve> curves{};   ///< one for each side but the first
  std::optional<double> gate = {};  ///< a line at +- this gap
};

/// Curves that share a colour.
struct CurveGroup {
  std::string name{};     ///< for the legend
  std::size_t style = 0;  ///< as Curve::style
};

/// Limits of the y axis; nullopt: the smallest and the largest value.
struct Limits {
  std::optional<double> low{};   ///< lower end
  std::optional<double> high{};  ///< upper end
};

/// Data of one plot.
struct Picture {
  std::string metric{};              ///< short name, for the terminal
  std::string label{};               ///< label of the y axis
  bool bytes = false;                ///< whether y is a number of bytes
  bool by_tokens = true;             ///< x is tokens; steps when a run lacks token counts
  bool logarithmic = false;          ///< whether the y axis is logarithmic; then values up to 0 are not drawn
  Limits limits{};                   ///< limits of the y axis
  std::vector<Curve> curves{};       ///< one per run, in order
  std::vector<CurveGroup> groups{};  ///< what the legend names instead of the curves; empty: the curves
  bool ranked = false;               ///< whether the curves are listed by Curve::end
  bool most_is_best = false;         ///< whether that list begins with the highest value
  std::optional<GapPanel> gap{};     ///< a second panel below
};

/// Image format.
enum class Image : std::uint8_t { svg, png };

/// Image format by the extension of `path`. Throws Error naming `path` when it ends in neither .svg nor .png.
Image image_of(const std::string& path);

/// The curves of a picture by Curve::end, best first; those whose end is not finite come last.
std::vector<const Curve*> ranking_of(const Picture& picture);

/// Draws the plot in braille characters, at most `columns` wide and `rows` high without title, legend and ranking.
/// Several curves without colour are drawn in letters. Ends in a newline. Deterministic.
std::string terminal_plot(const Picture& picture, int columns, int rows, bool colour);

/// Draws the plot into the existing file `path`, 900 x 506 pixels, or 900 x 700 with the panel of a gap, by running
/// gnuplot (from PATH) without a shell and without the user's settings. Throws Error `gnuplot: reason` when gnuplot is
/// not installed, fails or writes a truncated image, and Error when `path` cannot be written.
void gnuplot_plot(const Picture& picture, Image image, const std::string& path);

}  // namespace fp8::plot
