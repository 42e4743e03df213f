// Heatmaps as text.
#include <algorithm>
#include <array>
#include <cmath>

#include "aligned.h"
#include "fp8/base/text.h"
#include "fp8/plot/heatmap.h"

namespace fp8::plot {
namespace {

constexpr std::size_t kDigits = 3, kLeastCell = 6;  // of a value; width of a cell with one
constexpr const char* kMark = "!";

std::size_t longest(const std::vector<std::string>& names, std::size_t least) {
  std::size_t width = least;
  for (const std::string& name : names) width = std::max(width, name.size());
  return width;
}

// From 0, the first colour, to 1, the last.
double share_of(const Heatmap& map, double v) { return std::clamp((v - map.low) / (map.high - map.low), 0.0, 1.0); }

std::string painted(const Heatmap& map, double v, const std::string& text, bool colour) {
  constexpr double kBad = 2.0 / 3, kMiddle = 1.0 / 3;
  if (!colour || std::isnan(v) || share_of(map, v) < kMiddle) return text;
  return std::string("\x1b[") + (share_of(map, v) < kBad ? "33" : "31") + "m" + text + "\x1b[0m";
}

std::string shade(const Heatmap& map, double v) {
  constexpr std::array<const char*, 5> kShades = {"\u00b7", "\u2591", "\u2592", "\u2593", "\u2588"};
  if (std::isnan(v)) return " ";
  if (is_marked(v)) return kMark;
  return kShades.at(std::min<std::size_t>(4, static_cast<std::size_t>(share_of(map, v) * 5)));
}

// The names of the columns, or the first and the last step over the shades.
std::string heading(const Heatmap& map, std::size_t margin, std::size_t cell) {
  std::string line(margin, ' ');
  if (cell > 1) {
    for (std::size_t c = 0; c < column_count(map); ++c)
      line += " " + aligned_right(map.columns.empty() ? std::to_string(map.steps[c]) : terminal_safe(map.columns[c]),
                                  cell - 1);
    return line + "\n";
  }
  if (!map.columns.empty()) return "";
  const std::string first = std::to_string(map.steps.front()), last = std::to_string(map.steps.back());
  return line + " " + first +
         aligned_right(last, std::max(column_count(map), first.size() + last.size() + 1) - first.size()) + "\n";
}

}  // namespace

std::string terminal_heatmap(const Heatmap& map, int columns, bool colour) {
  const std::size_t margin = longest(map.rows, 1), count = column_count(map);
  const std::size_t wide = 1 + longest(map.columns, kLeastCell);
  const std::size_t cell = margin + wide * count <= static_cast<std::size_t>(std::max(columns, 1)) ? wide : 1;
  std::string out = terminal_safe(map.title) + "\n";
  if (cell == 1)
    out += std::string(shade(map, map.low)) + " " + format_short(map.low, kDigits) + " to " + shade(map, map.high) +
           " " + format_short(map.high, kDigits) + " and more; blank: no value" +
           (any_marked(map) ? std::string("; ") + kMark + ": not finite" : "") + "\n";
  else if (any_marked(map))
    out += std::string(kMark) + ": not finite\n";
  for (const HeatPanel& panel : map.panels) {
    out += "\n" + terminal_safe(panel.title) + "\n" + heading(map, margin, cell);
    for (std::size_t r = 0; r < map.rows.size(); ++r) {
      const std::string& name = map.rows[r];
      out += terminal_safe(name) + std::string(margin - name.size() + (cell == 1 ? 1 : 0), ' ');
      for (std::size_t c = 0; c < count; ++c) {
        const double v = panel.values[r * count + c];
        const std::string text = std::isnan(v) ? "-" : is_marked(v) ? kMark : format_short(v, kDigits);
        out += cell == 1 ? painted(map, v, shade(map, v), colour) : painted(map, v, aligned_right(text, cell), colour);
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace fp8::plot
