// Places of texts: widths, legends, labels of vertical lines.
#include "layout.h"

#include <algorithm>
#include <array>

#include "fp8/base/characters.h"
#include "fp8/base/text.h"
#include "gnuplot.h"

namespace fp8::plot {
namespace {

// Advance widths of DejaVu Sans from the blank to the tilde, in hundredths of its size.
constexpr std::array<unsigned char, 95> kWidths = {
    32, 40, 46, 84, 64, 95, 78, 27, 39,  39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79,
    60, 79, 69, 63, 61, 73, 68, 99, 69,  61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63,
    63, 28, 28, 58, 28, 97, 63, 61, 63,  63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84};

// Longest end of a text that is at most `width` wide.
std::string_view end_of(std::string_view text, double width, double font) {
  std::size_t from = text.size();
  for (std::size_t i = text.size(); i-- > 0;) {
    if (!begins_character(text[i])) continue;
    if (text_width(text.substr(i), font) > width) break;
    from = i;
  }
  return text.substr(from);
}

std::string_view beginning_of(std::string_view text, double width, double font) {
  std::size_t end = 0;
  for (std::size_t i = 1; i <= text.size(); ++i) {
    if (i < text.size() && !begins_character(text[i])) continue;
    if (text_width(text.substr(0, i), font) > width) break;
    end = i;
  }
  return text.substr(0, end);
}

constexpr double kSample = 30, kAfterSample = 8, kAfterEntry = 22, kLine = 21;

// Lines that entries need whose names are at most `width` wide.
std::size_t lines_of(const std::vector<Entry>& entries, double width, double space) {
  std::size_t lines = 1;
  double x = 0;
  for (const Entry& e : entries) {
    const double needed = kSample + kAfterSample + std::min(width, text_width(e.name, kFont));
    if (x > 0 && x + needed > space) ++lines, x = 0;
    x += needed + kAfterEntry;
  }
  return lines;
}

}  // namespace

double text_width(std::string_view text, double font) {
  double width = 0;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    const bool known = code >= ' ' && code <= '~';
    if (known || begins_character(c)) width += known ? kWidths.at(code - ' ') : 70;
  }
  return width * font / 100;
}

std::string fitted(const std::string& text, double width, double font) {
  if (text_width(text, font) <= width) return text;
  const double half = std::max(0.0, width - text_width("...", font)) / 2;
  return std::string(beginning_of(text, half, font)) + "..." + std::string(end_of(text, half, font));
}

std::vector<std::string> without_shared_beginning(std::vector<std::string> names) {
  if (names.size() < 2) return names;
  std::string shared = names.front();
  for (const std::string& name : names)
    shared.erase(std::mismatch(shared.begin(), shared.end(), name.begin(), name.end()).first, shared.end());
  const std::size_t cut = shared.find_last_of("_/-=");
  if (cut == std::string::npos) return names;
  for (std::string& name : names) name.erase(0, cut + 1);
  return names;
}

std::string screen(double x, double y, const Size& size) {
  return "screen " + format_short(x / size.width, 8) + "," + format_short(1 - y / size.height, 8);
}

std::string label_at(const std::string& text, double x, double y, const Size& size, const std::string& options) {
  return "set label " + quoted(text) + " at " + screen(x, y, size) + " front " + options + "\n";
}

Legend legend_of(const std::vector<Entry>& entries, double left, double right, double top, const Size& size) {
  constexpr std::size_t kMostLines = 3;
  if (entries.empty()) return {};
  double width = right - left - kSample - kAfterSample;
  while (width > 80 && lines_of(entries, width, right - left) > kMostLines) width -= 10;
  Legend legend{.script = "", .height = kLine * static_cast<double>(lines_of(entries, width, right - left))};
  double x = left, y = top + kLine / 2;
  for (const Entry& e : entries) {
    const std::string name = fitted(terminal_safe(e.name), width, kFont);
    const double needed = kSample + kAfterSample + text_width(name, kFont);
    if (x > left && x + needed > right) x = left, y += kLine;
    legend.script += "set arrow from " + screen(x, y, size) + " to " + screen(x + kSample, y, size) + " nohead front " +
                     e.line + "\n" +
                     label_at(name, x + kSample + kAfterSample, y, size, "left textcolor rgb '#202020'");
    x += needed + kAfterEntry;
  }
  return legend;
}

// From right to left a label is above all those whose lines begin below its text, so that no line crosses a text.
std::vector<std::optional<LineLabel>> place_labels(const std::vector<LineLabel>& labels, double left, double right,
                                                   std::size_t rows) {
  constexpr double kSpace = 8, kBesideLine = 3;
  std::vector<std::optional<LineLabel>> placed(labels.size());
  for (std::size_t i = labels.size(); i-- > 0;) {
    LineLabel label = labels[i];
    label.from = std::max(left, std::min(label.x + kBesideLine, right - label.width));
    if (label.width > right - left) continue;
    for (std::size_t j = i + 1; j < labels.size(); ++j) {
      const auto& other = placed[j];
      if (other && std::min(other->from, other->x) < label.from + label.width + kSpace)
        label.row = std::max(label.row, other->row + 1);
    }
    if (label.row < rows) placed[i] = label;
  }
  return placed;
}

}  // namespace fp8::plot
