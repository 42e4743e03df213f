// Draws heatmaps of rows x steps with gnuplot.
#include "fp8/plot/heatmap.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/text.h"
#include "gnuplot.h"

namespace fp8::plot {
namespace {

constexpr int kHeatmapWidth = 1200;                  // pixels
constexpr int kAboveCells = 70, kBelowCells = 70;    // heights above and below the cells
constexpr int kMargins = kAboveCells + kBelowCells;  // both
constexpr int kLeastHeight = 360;                    // height of the cells
constexpr int kMostHeight = 1300;                    // height of the cells
constexpr int kLabelHeight = 15;                     // least distance of two labels

bool panel_marked(const HeatPanel& panel) { return std::ranges::any_of(panel.values, is_marked); }

bool any_missing(const HeatPanel& panel) {
  return std::ranges::any_of(panel.values, [](double v) { return std::isnan(v); });
}

// The title, and what cells without a colour of the scale are.
std::string title_of(const Heatmap& map) {
  return map.title + (std::ranges::any_of(map.panels, any_missing) ? "; grey: no value" : "") +
         (any_marked(map) ? "; blue: not finite" : "");
}

// How often a row or a column is in the data: gnuplot draws an image only from two rows and two columns on.
std::size_t repeats(std::size_t count) { return count == 1 ? 2 : 1; }

// A block of data with the text of each cell of a panel.
template <class Text>
std::string block_of(const Heatmap& map, const HeatPanel& panel, const std::string& name, Text&& text) {
  const std::size_t columns = column_count(map), rows = map.rows.size();
  std::string data = name + " << END_OF_DATA\n";
  for (std::size_t r = 0; r < rows * repeats(rows); ++r) {
    for (std::size_t c = 0; c < columns * repeats(columns); ++c)
      data += text(panel.values[r / repeats(rows) * columns + c / repeats(columns)]) + " ";
    data += "\n";
  }
  return data + "END_OF_DATA\n";
}

std::string cells_data(const Heatmap& map) {
  std::string data;
  for (std::size_t p = 0; p < map.panels.size(); ++p) {
    data += block_of(map, map.panels[p], "$panel" + std::to_string(p), [&](double v) {
      return std::isnan(v) || is_marked(v) ? "NaN" : format_short(std::clamp(v, map.low, map.high), 6);
    });
    if (panel_marked(map.panels[p]))
      data += block_of(map, map.panels[p], "$marks" + std::to_string(p),
                       [](double v) { return std::string(is_marked(v) ? "255" : "0"); });
  }
  return data;
}

// How the cells of a panel are drawn: by their values, and then those that are marked. Renderers of SVG interpolate an
// image, so there each cell is a rectangle; between rectangles of a PNG there are faint lines.
std::string cells_of(const Heatmap& map, std::size_t panel, Image image) {
  const auto centre = [](const char* column, std::size_t count) {
    return repeats(count) == 1 ? column : std::string("($") + column + "/2.0-0.25)";
  };
  const std::string at = " matrix using " + centre("1", column_count(map)) + ":" + centre("2", map.rows.size()),
                    number = std::to_string(panel), pixels = image == Image::svg ? " pixels" : "";
  std::string cells = "plot $panel" + number + at + ":3 with image" + pixels;
  if (panel_marked(map.panels[panel])) cells += ", $marks" + number + at + ":(31):(95):(208):3 with rgbalpha" + pixels;
  return cells + "\n";
}

// Labels of the rows: each, or, where there is no space for that, the first of a layer.
std::string row_tics(const Heatmap& map, int height) {
  const double each = static_cast<double>(height) / static_cast<double>(map.rows.size());
  const auto layer_of = [&](std::size_t row) { return map.rows[row].substr(0, map.rows[row].find(' ')); };
  std::string tics;
  double last = -kLabelHeight;
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    const double y = each * static_cast<double>(r);
    const bool begins = r == 0 || layer_of(r) != layer_of(r - 1);
    if (y - last < kLabelHeight || (each < kLabelHeight && !begins)) continue;
    tics += (tics.empty() ? "" : ", ") + quoted(map.rows[r]) + " " + std::to_string(r);
    last = y;
  }
  return "set ytics (" + tics + ")\n";
}

// Labels of the columns: all names, or some of the steps.
std::string column_tics(const Heatmap& map) {
  constexpr std::size_t kMost = 5;
  const std::size_t columns = column_count(map), every = map.columns.empty() ? (columns + kMost - 1) / kMost : 1;
  std::string tics;
  for (std::size_t c = 0; c < columns; c += every)
    tics += (tics.empty() ? "" : ", ") + quoted(map.columns.empty() ? std::to_string(map.steps[c]) : map.columns[c]) +
            " " + std::to_string(c);
  return std::string("set xtics ") + (map.columns.empty() ? "" : "rotate by -30 ") + "(" + tics + ")\n";
}

std::string heatmap_script(const Heatmap& map, Image image) {
  const auto rows = static_cast<double>(map.rows.size()), columns = static_cast<double>(column_count(map));
  const int height = std::clamp(static_cast<int>(rows) * (kLabelHeight + 4), kLeastHeight, kMostHeight);
  std::size_t longest = 0;
  for (const std::string& row : map.rows) longest = std::max(longest, row.size());
  const double left = (24 + 9.0 * static_cast<double>(longest)) / kHeatmapWidth, right = 1 - 135.0 / kHeatmapWidth,
               gap = 14.0 / kHeatmapWidth;
  const auto panels = static_cast<double>(map.panels.size());
  const double width = (right - left - gap * (panels - 1)) / panels;
  const double top = 1 - static_cast<double>(kAboveCells) / (height + kMargins),
               bottom = static_cast<double>(kBelowCells) / (height + kMargins);
  const auto at = [](const char* side, double x) {
    return std::string("set ") + side + "margin at screen " + format_short(x, 6) + "\n";
  };
  std::string script =
      terminal_of(image, kHeatmapWidth, height + kMargins) + cells_data(map) +
      "set palette defined (0 '#fff7dc', 0.25 '#fdcc8a', 0.5 '#fc8d59', 0.75 '#d7301f', 1 '#67000d')\nset cbrange [" +
      format_double(map.low) + ":" + format_double(map.high) +
      "]\nset border 15 lw 1 lc rgb '#909090'\nset tics out nomirror scale 0.4 textcolor rgb '#202020'\nunset key\n" +
      "set object 1 rectangle from graph 0,0 to graph 1,1 behind fc rgb '#d0d0d0' fs solid noborder\n" +
      "set xrange [-0.5:" + format_short(columns - 0.5, 8) + "]\nset yrange [" + format_short(rows - 0.5, 8) +
      ":-0.5]\n" + column_tics(map) + "set multiplot\n" + at("t", top) + at("b", bottom) + "set label 1 " +
      quoted(title_of(map)) + " at screen 0.5," + format_short(1 - 18.0 / (height + kMargins), 6) +
      " center textcolor rgb '#202020'\n";
  for (std::size_t p = 0; p < map.panels.size(); ++p) {
    const double from = left + static_cast<double>(p) * (width + gap);
    const bool last = p + 1 == map.panels.size();
    script += at("l", from) + at("r", from + width) + "set title " + quoted(map.panels[p].title) +
              " offset 0,-0.6 textcolor rgb '#202020'\nset xlabel '" + (map.columns.empty() ? "step" : "") +
              "' offset 0,0.3 textcolor rgb '#202020'\n" +
              (p == 0 ? row_tics(map, height) : "unset ytics\nunset label 1\n") +
              (last ? "set colorbox user origin screen " + format_short(right + 16.0 / kHeatmapWidth, 6) + "," +
                          format_short(bottom, 6) + " size screen " + format_short(18.0 / kHeatmapWidth, 6) + "," +
                          format_short(top - bottom, 6) + " noborder\nset cblabel " + quoted(map.label) +
                          " offset 0.6,0 textcolor rgb '#202020'\n"
                    : "unset colorbox\n") +
              cells_of(map, p, image);
  }
  return script + "unset multiplot\n";
}

}  // namespace

std::size_t column_count(const Heatmap& map) { return map.columns.empty() ? map.steps.size() - 1 : map.columns.size(); }

bool is_marked(double value) { return value == HUGE_VAL; }

bool any_marked(const Heatmap& map) { return std::ranges::any_of(map.panels, panel_marked); }

void gnuplot_heatmap(const Heatmap& map, Image image, const std::string& path) {
  run_gnuplot(heatmap_script(map, image), image, path);
}

}  // namespace fp8::plot
