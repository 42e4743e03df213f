// Plots in braille characters of two by four dots each.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "aligned.h"
#include "fp8/base/characters.h"
#include "fp8/base/text.h"
#include "fp8/plot/plot.h"
#include "range.h"

namespace fp8::plot {
namespace {

constexpr std::size_t kNoCurve = std::numeric_limits<std::size_t>::max();

// A grid of characters; a character has the colour of the curve that was drawn in it last.
class Canvas {
 public:
  Canvas(std::size_t columns, std::size_t rows)
      : columns_(columns), rows_(rows), dots_(columns * rows), owner_(columns * rows, kNoCurve) {}

  double width() const { return static_cast<double>(2 * columns_ - 1); }
  double height() const { return static_cast<double>(4 * rows_ - 1); }

  // Sets the dot at (x, y), counted from the lower left, if it is on the canvas.
  void set(double x, double y, std::size_t curve) {
    if (!(x > -0.5 && x < width() + 0.5 && y > -0.5 && y < height() + 0.5)) return;
    // Bits of a braille character, by column and by row from the top.
    constexpr std::array<std::array<unsigned, 4>, 2> kBits = {{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    const auto across = static_cast<std::size_t>(std::lround(std::clamp(x, 0.0, width())));
    const auto down = static_cast<std::size_t>(std::lround(height() - std::clamp(y, 0.0, height())));
    const std::size_t at = down / 4 * columns_ + across / 2;
    dots_[at] |= kBits.at(across % 2).at(down % 4);
    owner_[at] = curve;
  }

  // A straight line between two points, both included.
  void line(double x0, double y0, double x1, double y1, std::size_t curve) {
    const double far = 4 * height();  // lines that leave the canvas end there
    y0 = std::clamp(y0, -far, far), y1 = std::clamp(y1, -far, far);
    const double steps = std::max(std::ceil(std::max(std::abs(x1 - x0), std::abs(y1 - y0))), 1.0);
    for (double i = 0; i <= steps; ++i) set(std::lerp(x0, x1, i / steps), std::lerp(y0, y1, i / steps), curve);
  }

  unsigned dots(std::size_t column, std::size_t row) const { return dots_[row * columns_ + column]; }
  std::size_t owner(std::size_t column, std::size_t row) const { return owner_[row * columns_ + column]; }

 private:
  std::size_t columns_, rows_;
  std::vector<unsigned> dots_;
  std::vector<std::size_t> owner_;
};

// U+2800 and the dots, as UTF-8.
std::string braille(unsigned dots) {
  return {static_cast<char>(0xE2), static_cast<char>(0xA0U | (dots >> 6U)), static_cast<char>(0x80U | (dots & 0x3FU))};
}

constexpr std::size_t kTerminalColours = 6;

// What is told apart: curves, or groups of them.
std::size_t count_of(const Picture& picture) {
  return picture.groups.empty() ? picture.curves.size() : picture.groups.size();
}

std::size_t index_of(const Picture& picture, std::size_t curve) {
  return picture.groups.empty() ? curve : picture.curves[curve].group;
}

const std::string& name_of(const Picture& picture, std::size_t index) {
  return picture.groups.empty() ? picture.curves[index].name : picture.groups[index].name;
}

// The letter of a curve or a group in a plot without enough colours: A to Z, a to z.
char letter(const Picture& picture, std::size_t index) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool own = picture.groups.empty() && picture.curves[index].letter != 0;
  return own ? picture.curves[index].letter : kLetters[index % kLetters.size()];
}

// The height of a value in a plot, from 0 to 1.
double height_share(const Picture& picture, const Range& range, double y) {
  if (!picture.logarithmic) return (y - range.y0) / (range.y1 - range.y0);
  return std::log(y / range.y0) / std::log(range.y1 / range.y0);
}

std::string in_colour(std::size_t curve, const std::string& text) {
  constexpr std::array<const char*, kTerminalColours> kCodes = {"34", "33", "32", "35", "36", "31"};
  return std::string("\x1b[") + kCodes.at(curve % kCodes.size()) + "m" + text + "\x1b[0m";
}

void draw(const Picture& picture, const Range& range, Canvas& canvas) {
  for (std::size_t c = 0; c < picture.curves.size(); ++c) {
    const Curve& curve = picture.curves[c];
    const Point* before = nullptr;
    for (const Point& p : curve.smooth.empty() ? curve.raw : curve.smooth) {
      const bool finite = std::isfinite(p.y) && (!picture.logarithmic || p.y > 0);
      const auto x = [&](const Point& q) { return (q.x - range.x0) / (range.x1 - range.x0) * canvas.width(); };
      const auto y = [&](const Point& q) { return height_share(picture, range, q.y) * canvas.height(); };
      const Point& from = before ? *before : p;
      if (finite) canvas.line(x(from), y(from), x(p), y(p), index_of(picture, c));
      before = finite ? &p : nullptr;
    }
  }
}

// How curves are told apart.
struct Look {
  bool letters = false, colour = false;
};

Look look_of(const Picture& picture, bool colour) {
  const std::size_t n = count_of(picture);
  return {n > 1 && (!colour || n > kTerminalColours), colour};
}

std::string cell(const Picture& picture, const Canvas& canvas, std::size_t column, std::size_t row, Look look) {
  const unsigned dots = canvas.dots(column, row);
  if (dots == 0) return " ";
  const std::size_t owner = canvas.owner(column, row);
  const std::string text = look.letters ? std::string(1, letter(picture, owner)) : braille(dots);
  return look.colour ? in_colour(owner, text) : text;
}

// The beginning of a text that has at most `width` characters.
std::string cut(const std::string& text, std::size_t width) {
  std::size_t used = 0, end = 0;
  while (end < text.size() && (!begins_character(text[end]) || used++ < width)) ++end;
  return end == text.size() ? text : cut(text.substr(0, end - std::min<std::size_t>(end, 3)), width) + "...";
}

// The metric and the names, in lines of at most `columns` characters.
std::string text_legend(const Picture& picture, Look look, std::size_t columns) {
  std::string text = picture.metric;
  std::size_t used = width_of(text);
  const std::string indent(std::min<std::size_t>(used, 12), ' ');
  for (std::size_t i = 0; i < count_of(picture); ++i) {
    if (name_of(picture, i).empty()) continue;
    const std::string mark = look.letters ? std::string(1, letter(picture, i)) : "\u2501\u2501";
    const std::string name = cut(terminal_safe(name_of(picture, i)), columns - indent.size() - 6);
    const std::size_t width = 3 + width_of(mark) + 1 + width_of(name);
    if (used + width > columns) text += "\n" + indent, used = indent.size();
    used += width;
    text += "   " + (look.colour ? in_colour(i, mark) : mark) + " " + name;
  }
  return text + "\n";
}

// The first and the last curves by their ends.
std::string ranking_lines(const Picture& picture, std::size_t columns) {
  constexpr std::size_t kBest = 5;
  if (!picture.ranked) return "";
  const std::vector<const Curve*> all = ranking_of(picture);
  std::string text = picture.most_is_best ? "highest at the end:\n" : "lowest at the end:\n";
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == kBest && all.size() > kBest + 1) text += "  ...\n", i = all.size() - 1;
    const std::string number = std::to_string(i + 1) + "  ", value = "  " + format_short(all[i]->end, 5);
    text += "  " + number + cut(terminal_safe(all[i]->name), columns - 2 - number.size() - value.size()) + value + "\n";
  }
  return text;
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

Range gap_range(const GapPanel& gap) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Range r{kInfinity, -kInfinity, 0, 0};
  for (const GapCurve& curve : gap.curves) {
    if (curve.mean.empty()) continue;
    r.x0 = std::min(r.x0, curve.mean.front().x), r.x1 = std::max(r.x1, curve.mean.back().x);
  }
  if (r.x0 > r.x1) return {};
  for (const GapCurve& curve : gap.curves) {
    for (std::size_t i = 0; i < curve.mean.size(); ++i) {
      if (curve.mean[i].x < r.x0 + (r.x1 - r.x0) / 10) continue;
      for (const double y : {curve.mean[i].y, curve.low[i].y, curve.high[i].y}) {
        if (std::isfinite(y)) r.y0 = std::min(r.y0, y), r.y1 = std::max(r.y1, y);
      }
    }
  }
  if (gap.gate && *gap.gate < 4 * std::max(-r.y0, r.y1)) {
    r.y0 = std::min(r.y0, -*gap.gate), r.y1 = std::max(r.y1, *gap.gate);
  }
  if (r.y1 <= r.y0) r.y0 = -1e-3, r.y1 = 1e-3;
  const double room = (r.y1 - r.y0) / 20;
  return {r.x0, r.x1, r.y0 - room, r.y1 + room};
}

Range range_of(const Picture& picture, bool with_steps) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Range r{kInfinity, -kInfinity, kInfinity, -kInfinity};
  for (const Curve& curve : picture.curves) {
    for (const Point& p : with_steps || curve.smooth.empty() ? curve.raw : curve.smooth) {
      r.x0 = std::min(r.x0, p.x), r.x1 = std::max(r.x1, p.x);
      if (!std::isfinite(p.y) || (picture.logarithmic && p.y <= 0)) continue;
      r.y0 = std::min(r.y0, p.y), r.y1 = std::max(r.y1, p.y);
    }
  }
  if (!std::isfinite(r.x0)) r.x0 = 0, r.x1 = 1;
  if (!std::isfinite(r.y0)) r.y0 = picture.logarithmic ? 1.0 : 0.0, r.y1 = 10;
  r.y0 = picture.limits.low.value_or(r.y0), r.y1 = picture.limits.high.value_or(r.y1);
  if (r.x1 <= r.x0) r.x1 = r.x0 + 1;
  if (r.y1 <= r.y0) {
    const double pad = r.y0 == 0 ? 1 : std::abs(r.y0) / 2;
    if (!picture.limits.low || picture.limits.high) r.y0 -= pad;
    if (!picture.limits.high || picture.limits.low) r.y1 = r.y0 + 2 * pad;
  }
  return r;
}

namespace {

std::string count_text(const Picture& picture, double x, bool unit) {
  return human_count(static_cast<std::uint64_t>(std::max(x, 0.0))) + (!unit               ? ""
                                                                      : picture.by_tokens ? " tokens"
                                                                                          : " steps");
}

// The x axis with a mark at each place at which a run changed, and below it a line for each of the first marks.
std::string axis_lines(const Picture& picture, const Range& range, std::size_t margin, std::size_t width) {
  constexpr std::size_t kMostLines = 8;
  std::vector<std::string> axis(width, "\u2500");
  std::vector<std::string> lines;
  for (const Curve& curve : picture.curves) {
    for (const Mark& mark : curve.marks) {
      const double share = (mark.x - range.x0) / (range.x1 - range.x0);
      axis[static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(width - 1)))] =
          "\u25b2";
      const std::string what = mark.text.empty() ? "restart" : terminal_safe(mark.text);
      lines.push_back(cut(std::string(margin + 2, ' ') + "\u25b2 " + terminal_safe(curve.name) + " at " +
                              count_text(picture, mark.x, true) + ": " + what,
                          margin + 2 + width) +
                      "\n");
    }
  }
  std::string out = std::string(margin + 1, ' ') + "\u2514";
  for (const std::string& part : axis) out += part;
  const std::string from = count_text(picture, range.x0, false), to = count_text(picture, range.x1, true);
  out += "\n" + std::string(margin + 2, ' ') + from + aligned_right(to, width - from.size()) + "\n";
  for (std::size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) out += lines[i];
  if (lines.size() > kMostLines) {
    out += std::string(margin + 2, ' ') + "and " + std::to_string(lines.size() - kMostLines) + " more marks\n";
  }
  return out;
}

// The labels of the y axis, from the top.
std::array<std::string, 3> y_labels(const Picture& picture) {
  const Range range = range_of(picture);
  const double middle = picture.logarithmic ? std::sqrt(range.y0 * range.y1) : std::midpoint(range.y0, range.y1);
  return {format_short(range.y1, 4), format_short(middle, 4), format_short(range.y0, 4)};
}

// The width of the labels of the y axis.
std::size_t margin_of(const Picture& picture) {
  const std::array<std::string, 3> labels = y_labels(picture);
  return std::max({labels[0].size(), labels[1].size(), labels[2].size()});
}

// One panel, right of a margin.
std::string panel(const Picture& picture, std::size_t margin, int columns, int rows, bool colour) {
  const Range range = range_of(picture);
  const auto height = static_cast<std::size_t>(std::max(rows - 2, 3));
  const std::array<std::string, 3> labels = y_labels(picture);
  const std::size_t width = std::max(static_cast<std::size_t>(std::max(columns, 40)) - margin - 2, std::size_t{10});
  Canvas canvas(width, height);
  draw(picture, range, canvas);
  const Look look = look_of(picture, colour);
  const std::size_t all = margin + 2 + width;
  std::string out = text_legend(picture, look, all);
  for (std::size_t row = 0; row < height; ++row) {
    const bool middle = row == height / 2, labelled = row == 0 || middle || row + 1 == height;
    std::string line = aligned_right(labelled ? labels.at(row == 0 ? 0 : middle ? 1 : 2) : "", margin);
    line += labelled ? " \u2524" : " \u2502";
    for (std::size_t column = 0; column < width; ++column) line += cell(picture, canvas, column, row, look);
    out += without_trailing_blanks(line);
  }
  return out + axis_lines(picture, range, margin, width) + ranking_lines(picture, all);
}

// The gaps as curves over the x axis of the picture: zero, both ends of the band of a single gap, and the means on top.
Picture gap_picture(const Picture& picture) {
  const GapPanel& gap = *picture.gap;
  Picture p{.metric = "gap", .by_tokens = true, .curves = {}, .gap = {}};
  const Range range = gap_range(gap);
  const auto add = [&](const std::string& name, char letter, std::vector<Point> points) {
    for (Point& q : points) q.y = std::clamp(q.y, range.y0, range.y1);
    p.curves.push_back(
        {.name = name, .raw = std::move(points), .smooth = {}, .style = 0, .letter = letter, .marks = {}});
  };
  if (gap.curves.empty() || gap.curves.front().mean.empty()) return p;
  const Range above = range_of(picture);
  add("0", '.', {{above.x0, 0}, {above.x1, 0}});
  const bool one = gap.curves.size() == 1;
  if (one) {
    add(gap.band_name, '-', gap.curves.front().low);
    add("", '-', gap.curves.front().high);
  }
  for (std::size_t i = 0; i < gap.curves.size(); ++i)
    add(gap.curves[i].name, one ? '*' : static_cast<char>('B' + i % 25), gap.curves[i].mean);
  return p;
}

}  // namespace

std::string terminal_plot(const Picture& picture, int columns, int rows, bool colour) {
  constexpr int kGapRows = 10;
  if (!picture.gap) return panel(picture, margin_of(picture), columns, rows, colour);
  const Picture gap = gap_picture(picture);
  const std::size_t margin = std::max(margin_of(picture), margin_of(gap));  // so that the x axes are aligned
  return panel(picture, margin, columns, rows, colour) + "\n" +
         panel(gap, margin, columns, std::min(rows, kGapRows), colour);
}

}  // namespace fp8::plot
