// SVG and PNG through gnuplot. The script is passed on standard input, so no shell and no path needs quoting. The image
// is read from standard output, since gnuplot does not report a full disk.
#include "gnuplot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/program.h"
#include "fp8/base/text.h"
#include "fp8/plot/plot.h"
#include "range.h"

namespace fp8::plot {
namespace {

// Colours that colour-blind readers can distinguish. Source: Okabe and Ito 2008, without yellow.
constexpr std::array<const char*, kColours> kPalette = {"0072B2", "D55E00", "009E73", "CC79A7",
                                                        "E69F00", "56B4E9", "404040"};

// Solid lines first; with all colours 35 styles, and as many again in thin lines.
constexpr std::array<const char*, 5> kDashes = {"1", "(14,6)", "(4,4)", "(14,4,3,4)", "(3,3,3,10)"};

// Point types by MarkKind: triangle, circle, diamond.
constexpr std::array<const char*, 3> kMarkPoints = {"9", "7", "13"};
constexpr std::array<const char*, 3> kMarkNames = {"restart", "precision changes", "settings change"};

constexpr int kWidth = 900, kHeight = 506, kTallHeight = 700;  // pixels; without and with the panel of a gap
constexpr std::size_t kKeyOnTop = 8;                           // most curves whose legend is above the plot

void append_data(const std::string& name, const std::vector<Point>& points, std::string& script) {
  script += "$" + name + " << END_OF_DATA\n";
  bool any = false;
  for (const Point& p : points) {
    if (std::isfinite(p.y)) {
      script += format_double(p.x) + " " + format_double(p.y) + "\n";
    } else if (any) {
      script += "\n";  // an empty line interrupts the curve
    }
    any = any || std::isfinite(p.y);
  }
  if (!any) script += "0 NaN\n";
  script += "END_OF_DATA\n";
}

// Divisor that keeps the axis labels short, and its suffix in the axis label.
struct Scale {
  double divisor = 1;
  std::string suffix{};
};

Scale scale_of(const Picture& picture, const Range& range) {
  const double largest = std::max(std::abs(range.y0), std::abs(range.y1));
  if (picture.bytes) return {1024.0 * 1024 * 1024, " (GiB)"};
  if (largest >= 1e10) return {1e9, " (G)"};
  if (largest >= 1e7) return {1e6, " (M)"};
  if (largest >= 1e4) return {1e3, " (k)"};
  if (largest >= 1e-2 || largest < 1e-300) return {};
  const int exponent = static_cast<int>(std::floor(std::log10(largest)));
  return {std::pow(10.0, exponent), " (1e" + std::to_string(exponent) + ")"};
}

// Terminal and what all panels share.
std::string style_of(const Picture& picture, Image image, const Range& range) {
  const bool beside = picture.curves.size() > kKeyOnTop;
  return terminal_of(image, kWidth, picture.gap ? kTallHeight : kHeight) +
         "set border 3 lw 1 lc rgb '#909090'\n"
         "set tics nomirror out scale 0.5 textcolor rgb '#404040'\n"
         "set grid lt 1 dt 1 lw 1 lc rgb '#e4e4e4'\n"
         "set key " +
         (beside ? "rmargin top vertical" : "tmargin left horizontal") +
         " reverse Left samplen 2 width 2 textcolor rgb '#202020'\n" + (beside ? "" : "set rmargin 4\n") +
         "set format x '%.1s%c'\nset format y '%g'\n" +
         (picture.gap ? "set lmargin 10\nset xrange [" + format_double(range.x0) + ":" + format_double(range.x1) + "]\n"
                      : "set autoscale xfix\n");
}

std::string x_label(const Picture& picture) {
  return std::string("set xlabel '") + (picture.by_tokens ? "tokens seen" : "step") + "' textcolor rgb '#202020'\n";
}

std::string y_label(const std::string& text) { return "set ylabel " + quoted(text) + " textcolor rgb '#202020'\n"; }

std::string colour_of(const Curve& curve) { return kPalette.at(curve.style % kColours); }

std::string line_of(const Curve& curve) {
  const std::size_t pattern = curve.style / kColours;
  return std::string("lines lw ") + (pattern / kDashes.size() % 2 == 0 ? "2" : "1") + " dt " +
         kDashes.at(pattern % kDashes.size());
}

// The height of the drawn curve at x, for a mark; NaN where there is none.
double height_at(const Curve& curve, double x) {
  const std::vector<Point>& points = curve.smooth.empty() ? curve.raw : curve.smooth;
  const auto at = std::lower_bound(points.begin(), points.end(), x, [](const Point& p, double v) { return p.x < v; });
  return at == points.end() ? std::numeric_limits<double>::quiet_NaN() : at->y;
}

// Labels of the marks, their points, and their entries in the legend.
struct Marks {
  std::string labels{}, plots{}, keys{};
};

Marks marks_of(const Picture& picture, const Scale& scale) {
  constexpr int kMostLabels = 12;
  Marks marks;
  std::array<bool, kMarkPoints.size()> seen{};
  int labels = 0;
  for (const Curve& curve : picture.curves) {
    for (const Mark& mark : curve.marks) {
      const double y = height_at(curve, mark.x) / scale.divisor;
      if (!std::isfinite(y)) continue;
      const auto kind = static_cast<std::size_t>(mark.kind);
      seen.at(kind) = true;
      const std::string at = format_double(mark.x) + "," + format_double(y);
      marks.labels += "set label " + (mark.text.empty() || ++labels > kMostLabels ? "''" : quoted(mark.text)) + " at " +
                      at + " front offset 0.6,0.9 textcolor rgb '#" + colour_of(curve) + "' point pt " +
                      kMarkPoints.at(kind) + " ps 1.5 lc rgb '#" + colour_of(curve) + "'\n";
    }
  }
  for (std::size_t kind = 0; kind < seen.size(); ++kind) {
    if (!seen.at(kind)) continue;
    marks.keys += std::string(", keyentry with points pt ") + kMarkPoints.at(kind) + " lc rgb '#404040' title '" +
                  kMarkNames.at(kind) + "'";
  }
  return marks;
}

// The curves, their data first.
std::string curves_of(const Picture& picture, const Range& range) {
  const Scale scale = scale_of(picture, range);
  const std::string values = " using 1:($2/" + format_double(scale.divisor) + ") with ";
  const Marks marks = marks_of(picture, scale);
  const bool from_zero = range.y0 >= 0 && range.y0 < range.y1 / 4;
  std::string data, faint, strong;
  for (std::size_t i = 0; i < picture.curves.size(); ++i) {
    const Curve& curve = picture.curves[i];
    const std::string raw = "raw" + std::to_string(i), smooth = "smooth" + std::to_string(i);
    const bool both = !curve.smooth.empty();
    append_data(raw, curve.raw, data);
    if (both) append_data(smooth, curve.smooth, data);
    if (both) faint += "$" + raw + values + "lines lw 1 lc rgb '#B0" + colour_of(curve) + "' notitle, ";
    strong += (strong.empty() ? "$" : ", $") + (both ? smooth : raw) + values +
              (curve.raw.size() > 1 ? line_of(curve) : "points pt 7") + " lc rgb '#" + colour_of(curve) + "' title " +
              quoted(curve.name);
  }
  return y_label(picture.label + scale.suffix) + "set offsets 0, 0, graph 0.03, " +
         (from_zero ? "0\nset yrange [0:*]\n" : "graph 0.03\n") + data + marks.labels + "plot " + faint + strong +
         marks.keys + "\n";
}

// The panel of the gaps: bands, means, zero, gate.
std::string gap_of(const Picture& picture) {
  const GapPanel& gap = *picture.gap;
  const Range range = gap_range(gap);
  const bool one = gap.curves.size() == 1;
  std::string data, bands, means;
  for (std::size_t k = 0; k < gap.curves.size(); ++k) {
    const GapCurve& curve = gap.curves[k];
    const std::string number = std::to_string(k), colour = kPalette.at(curve.style % kColours);
    data += "$band" + number + " << END_OF_DATA\n";
    for (std::size_t i = 0; i < curve.mean.size(); ++i) {
      if (!std::isfinite(curve.low[i].y)) continue;
      data += format_double(curve.mean[i].x) + " " + format_double(curve.low[i].y) + " " +
              format_double(curve.high[i].y) + "\n";
    }
    data += "0 NaN NaN\nEND_OF_DATA\n";
    append_data("gap" + number, curve.mean, data);
    bands += (k == 0 ? "$band" : ", $band") + number + " using 1:2:3 with filledcurves fc rgb '#" +
             (one ? "D5D5D5' title " + quoted(gap.band_name) : "D8" + colour + "' notitle");
    means += ", $gap" + number + " using 1:2 with lines lw 2 lc rgb '#" + (one ? "000000" : colour) + "' title " +
             quoted(curve.name);
  }
  const auto level = [](double y, const char* dash, const std::string& title) {
    return ", " + format_double(y) + " with lines lw 1 dt " + dash + " lc rgb '#606060' " + title;
  };
  std::string plot = "plot " + bands + level(0, "1", "notitle") + means;
  if (gap.gate) plot += level(*gap.gate, "(6,4)", "title 'gate'") + level(-*gap.gate, "(6,4)", "notitle");
  return "unset label\nset offsets 0,0,0,0\nset yrange [" + format_double(range.y0) + ":" + format_double(range.y1) +
         "]\n" + y_label(gap.label) + data + plot + "\n";
}

std::string script_of(const Picture& picture, Image image) {
  const Range range = range_of(picture);
  const std::string style = style_of(picture, image, range);
  if (!picture.gap) return style + x_label(picture) + curves_of(picture, range);
  return style + "set multiplot\nset size 1,0.6\nset origin 0,0.4\n" + curves_of(picture, range) +
         "set size 1,0.4\nset origin 0,0\n" + x_label(picture) + gap_of(picture) + "unset multiplot\n";
}

std::string first_error(const std::string& text) {
  // gnuplot prints the line, a caret, then "line N: " and the reason.
  const std::size_t at = text.rfind("line ");
  std::string error = at == std::string::npos ? text : text.substr(at);
  error.erase(std::min(error.find('\n'), error.size()));
  return error;
}

}  // namespace

Image image_of(const std::string& path) {
  if (path.ends_with(".svg")) return Image::svg;
  if (path.ends_with(".png")) return Image::png;
  throw Error(path + ": the name of a plot must end in .svg or .png");
}

// Only the three special characters are escaped; a backquote would run a command.
// Octal escapes of other characters are wrong: gnuplot reads up to four digits after "\0", including digits of the
// text. Single quotes are wrong: gnuplot 5.4 does not accept a doubled quote at the beginning of the text.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : terminal_safe(text)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '`' ? "\\140" : std::string(1, c);
  }
  return out + "\"";
}

std::string terminal_of(Image image, int width, int height) {
  return std::string("set encoding utf8\nset terminal ") +
         (image == Image::svg ? "svg font 'DejaVu Sans,15'" : "pngcairo font 'DejaVu Sans,12'") + " size " +
         std::to_string(width) + "," + std::to_string(height) + " noenhanced background rgb '#ffffff'\n";
}

void run_gnuplot(const std::string& script, Image image, const std::string& path) {
  const std::optional<ProgramResult> run = run_program({"gnuplot", "-d"}, script);  // -d: no settings
  if (!run) throw Error("gnuplot: not installed; without -o the plot is drawn in the terminal");
  if (run->status != 0) throw Error("gnuplot: status " + std::to_string(run->status) + ": " + first_error(run->err));
  const std::string& text = run->out;
  if (text.empty()) throw Error("gnuplot: no output: " + first_error(run->err));
  const std::string_view whole = std::string_view(text).substr(0, text.find_last_not_of('\n') + 1);
  if (!whole.ends_with(image == Image::svg ? "</svg>" : "IEND\xAE\x42\x60\x82"))
    throw Error("gnuplot: the image is truncated");
  File output = File::open_update(path);
  output.write_all(text);
  output.close();
}

void gnuplot_plot(const Picture& picture, Image image, const std::string& path) {
  run_gnuplot(script_of(picture, image), image, path);
}

}  // namespace fp8::plot
