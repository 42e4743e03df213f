// Curves through gnuplot: every text has its place in pixels, so that none overlaps another or leaves the picture.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "fp8/base/text.h"
#include "gnuplot.h"
#include "layout.h"
#include "range.h"

namespace fp8::plot {
namespace {

// Colours that colour-blind readers can distinguish. Source: Okabe and Ito 2008, without yellow.
constexpr std::array<const char*, kColours> kPalette = {"0072B2", "D55E00", "009E73", "CC79A7",
                                                        "E69F00", "56B4E9", "404040"};

// Solid lines first; with all colours 35 styles, and as many again in thin lines.
constexpr std::array<const char*, 5> kDashes = {"1", "(14,6)", "(4,4)", "(14,4,3,4)", "(3,3,3,10)"};

constexpr double kEdge = 4;                                               // pixels between a label and the edge
constexpr double kWidth = 900, kHeight = 506, kTallHeight = 700;          // pixels; without and with the panel of a gap
constexpr double kLeft = 100, kRight = 26, kBottom = 62, kGapPart = 0.4;  // margins; share of the panel of a gap
constexpr double kYLabel = 12;                                            // place of the label of the y axis
constexpr double kLabelRow = 18;                                          // height of a row of labels above the plot
constexpr std::size_t kLabelRows = 4, kMostLines = 16;                    // of labels; of vertical lines

// A part of the picture, in pixels from its upper left corner.
struct Box {
  double left = 0, right = 0, top = 0, bottom = 0;
};

std::string margins_of(const Box& box, const Size& size) {
  const auto margin = [](char side, double at) {
    return std::string("set ") + side + "margin at screen " + format_short(at, 8) + "\n";
  };
  return margin('l', box.left / size.width) + margin('r', box.right / size.width) +
         margin('t', 1 - box.top / size.height) + margin('b', 1 - box.bottom / size.height);
}

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

std::string colour_of(std::size_t style) { return std::string("'#") + kPalette.at(style % kColours) + "'"; }

// Width, dashes and colour of a line. The width of each pattern differs a little, since gnuplot's SVG joins the samples
// of a legend that have the same colour and width, without their dashes.
std::string line_of(std::size_t style, bool thin) {
  const std::size_t pattern = style / kColours, dashes = pattern % kDashes.size();
  return std::string("lw ") + (thin || pattern / kDashes.size() % 2 != 0 ? "1" : "2") + ".0" + std::to_string(dashes) +
         " dt " + kDashes.at(dashes) + " lc rgb " + colour_of(style);
}

// Marks on a logarithmic axis: 1, 2 and 5 of each decade, or, where these are few, round distances.
std::string log_tics(double low, double high) {
  constexpr double kDecade = 10, kRounding = 1 + 1e-9;
  constexpr std::size_t kFew = 3;
  std::vector<double> values;
  const bool many = std::log10(high / low) > 4;
  for (double unit = std::pow(kDecade, std::floor(std::log10(low))); unit <= high * kRounding; unit *= kDecade)
    for (const double round : {1.0, 2.0, 5.0})
      if (round == 1 || !many) values.push_back(round * unit);
  const auto outside = [&](double v) { return v * kRounding < low || v > high * kRounding; };
  std::erase_if(values, outside);
  if (values.size() < kFew) {
    values.clear();
    const double step = step_of(high - low);
    for (double n = std::floor(low / step); n * step <= high * kRounding; ++n) values.push_back(n * step);
    std::erase_if(values, outside);
  }
  std::string tics;
  for (const double v : values) tics += (tics.empty() ? "" : ", ") + format_short(v, 8);
  return tics;
}

// The range of the y axis.
std::string y_range_of(const Picture& picture, const Range& range, const Scale& scale) {
  double low = range.y0 / scale.divisor, high = range.y1 / scale.divisor;
  std::string axis;
  if (picture.logarithmic) {
    if (!picture.limits.low) low /= std::pow(high / low, 0.03);
    if (!picture.limits.high) high *= std::pow(high / low, 0.03);
    axis = "set logscale y\nset ytics (" + log_tics(low, high) + ")\n";
  } else {
    const double room = 0.03 * (high - low);
    const bool from_zero = low >= 0 && low < high / 4;
    if (!picture.limits.low) low = from_zero ? 0 : low - room;
    if (!picture.limits.high) high += room;
  }
  return axis + "set yrange [" + format_double(low) + ":" + format_double(high) + "]\n";
}

// Vertical lines at marks.
struct Marks {
  std::vector<Mark> lines{};           // in order of x, each once
  std::vector<std::string> colours{};  // one for each line
  std::vector<std::optional<LineLabel>> labels{};
  double height = 0;  // height of the labels
};

// Marks that several curves share are one line, grey unless it belongs to one of several curves.
Marks marks_of(const Picture& picture, const Range& range, const Box& box) {
  Marks marks;
  std::vector<std::pair<Mark, std::string>> all;
  for (const Curve& curve : picture.curves) {
    const std::string colour = picture.curves.size() == 1 ? "'#606060'" : colour_of(curve.style);
    for (const Mark& mark : curve.marks) {
      const auto same = std::ranges::find_if(
          all, [&](const auto& other) { return other.first.x == mark.x && other.first.text == mark.text; });
      if (same == all.end()) {
        all.emplace_back(mark, colour);
      } else if (same->second != colour) {
        same->second = "'#606060'";
      }
    }
  }
  std::ranges::stable_sort(all, {}, [](const auto& m) { return m.first.x; });
  std::vector<LineLabel> wanted;
  for (const auto& [mark, colour] : all) {
    if (mark.x < range.x0 || mark.x > range.x1) continue;
    const std::string text = terminal_safe(mark.text.empty() ? "restart" : mark.text);
    marks.lines.push_back({.x = mark.x, .kind = mark.kind, .text = fitted(text, 420, kSmallFont)});
    marks.colours.push_back(colour);
    wanted.push_back({.x = box.left + (mark.x - range.x0) / (range.x1 - range.x0) * (box.right - box.left),
                      .width = text_width(marks.lines.back().text, kSmallFont),
                      .from = 0,
                      .row = 0});
  }
  marks.labels.resize(wanted.size());
  if (wanted.size() <= kMostLines) marks.labels = place_labels(wanted, box.left, kWidth - kEdge, kLabelRows);
  for (const auto& label : marks.labels)
    if (label) marks.height = std::max(marks.height, kLabelRow * static_cast<double>(label->row + 1) + 2);
  return marks;
}

// Lines through the plot up to their labels; where there are many, short ones at the top of the plot.
std::string marks_script(const Marks& marks, const Box& box, const Size& size) {
  const bool few = marks.lines.size() <= kMostLines;
  std::string script;
  for (std::size_t i = 0; i < marks.lines.size(); ++i) {
    const std::string x = "first " + format_double(marks.lines[i].x);
    const auto& label = marks.labels[i];
    const double y = label ? box.top - 4 - kLabelRow * (static_cast<double>(label->row) + 0.5) : box.top;
    std::string to = screen(0, label ? y - kLabelRow / 2 : box.top, size);
    to = to.substr(to.find(',') + 1);
    script += "set arrow from " + x + ", graph " + (few ? "0" : "0.97") + " to " + x + ", screen " + to +
              " nohead back lw 0.6 dt (6,4) lc rgb " + marks.colours[i] + "\n";
    if (label) {
      // The fonts of PNG and SVG differ in width. A label at the right edge ends there in both.
      const double end = label->from + label->width;
      const bool at_edge = end > kWidth - kEdge - 1;
      script += label_at(marks.lines[i].text, at_edge ? end : label->from, y, size,
                         std::string(at_edge ? "right" : "left") + " font ',11' textcolor rgb " + marks.colours[i]);
    }
  }
  return script;
}

// The list of the curves by their ends, beside the plot.
class Ranking {
 public:
  explicit Ranking(const Picture& picture) : most_is_best_(picture.most_is_best) {
    constexpr double kMostName = 190, kOther = 108;  // the latter: spaces, number and value
    if (!picture.ranked) return;
    ranked_ = ranking_of(picture);
    for (const Curve* curve : ranked_) names_.push_back(terminal_safe(curve->name));
    names_ = without_shared_beginning(names_);
    for (const std::string& name : names_) name_width_ = std::max(name_width_, text_width(name, kSmallFont));
    name_width_ = std::min(name_width_, kMostName);
    width_ = name_width_ + kOther;
  }
  double width() const { return width_; }

  std::string script(const Box& box, const Size& size) const {
    constexpr double kRow = 19, kNumber = 24;
    constexpr std::size_t kWorst = 2;
    if (ranked_.empty()) return "";
    const double left = box.right + 18;
    double y = box.top + 8;
    const auto rows = static_cast<std::size_t>((box.bottom - y) / kRow);
    const std::size_t best = ranked_.size() <= rows ? rows : rows - kWorst - 1;
    std::string script = label_at(most_is_best_ ? "highest at the end" : "lowest at the end", left, y, size,
                                  "left font ',11' textcolor rgb '#666666'");
    for (std::size_t i = 0; i < ranked_.size(); ++i) {
      if (ranked_.size() > rows && i >= best && i + kWorst < ranked_.size()) {
        if (i == best) script += label_at("...", left + kNumber, y += kRow, size, "left font ',11'");
        continue;
      }
      y += kRow;
      const std::string look = " font ',11' textcolor rgb " + colour_of(ranked_[i]->style);
      const double value = ranked_[i]->end;
      script +=
          label_at(std::to_string(i + 1), left + kNumber - 6, y, size, "right" + look) +
          label_at(fitted(names_[i], name_width_, kSmallFont), left + kNumber, y, size, "left" + look) +
          label_at(std::isfinite(value) ? format_short(value, 5) : "-", left + width_ - 18, y, size, "right" + look);
    }
    return script;
  }

 private:
  std::vector<const Curve*> ranked_;
  bool most_is_best_;
  std::vector<std::string> names_;
  double name_width_ = 0, width_ = 0;
};

std::vector<Entry> entries_of(const Picture& picture) {
  std::vector<Entry> entries;
  for (const CurveGroup& group : picture.groups) entries.push_back({group.name, line_of(group.style, false)});
  if (!picture.groups.empty() || picture.ranked) return entries;
  for (const Curve& curve : picture.curves) entries.push_back({curve.name, line_of(curve.style, false)});
  return entries;
}

// The curves, their data first. Behind the moving mean of one of few curves are its steps in a fainter colour.
std::string plot_of(const Picture& picture, const Scale& scale) {
  const std::string values = " using 1:($2/" + format_double(scale.divisor) + ") with ";
  const bool many = picture.curves.size() > kMostNamed;
  std::string data, faint, strong;
  for (std::size_t i = 0; i < picture.curves.size(); ++i) {
    const Curve& curve = picture.curves[i];
    const std::string raw = "raw" + std::to_string(i), smooth = "smooth" + std::to_string(i);
    const bool both = !curve.smooth.empty();
    if (!both || !many) append_data(raw, curve.raw, data);
    if (both) append_data(smooth, curve.smooth, data);
    if (both && !many)
      faint += "$" + raw + values + "lines lw 1 lc rgb '#B0" + kPalette.at(curve.style % kColours) + "' notitle, ";
    const bool few = curve.raw.size() <= kFewPoints;
    strong += (strong.empty() ? "$" : ", $") + (both ? smooth : raw) + values +
              (few ? "linespoints pt 7 ps 0.6 " : "lines ") + line_of(curve.style, many) + " notitle";
  }
  return data + "plot " + faint + strong + "\n";
}

std::string x_range_of(const Range& range) {
  return "set xrange [" + format_double(range.x0) + ":" + format_double(range.x1) + "]\n";
}

// The label of the x axis below the numbers at its marks, whose distance from the axis gnuplot chooses by the format.
std::string x_label_of(const Picture& picture, const Box& box, const Size& size) {
  return label_at(picture.by_tokens ? "tokens seen" : "step", std::midpoint(box.left, box.right), size.height - 12,
                  size, "center textcolor rgb '#202020'");
}

// The label of the y axis at the edge of the picture. gnuplot would place it left of the widest number, and so with
// wide numbers outside of the picture.
std::string y_label_of(const std::string& label, const Box& box, const Size& size) {
  return label_at(label, kYLabel, std::midpoint(box.top, box.bottom), size,
                  "center rotate by 90 textcolor rgb '#202020'");
}

// The range of the curves; its x axis is that of both panels.
Range range_of_panels(const Picture& picture) { return range_of(picture, picture.curves.size() <= kMostNamed); }

// The panel of the curves in `box`, whose top is the end of the picture. The ranking is right of it.
std::string curves_of(const Picture& picture, const Ranking& ranking, Box box, const Size& size) {
  const Range range = range_of_panels(picture);
  const Scale scale = scale_of(picture, range);
  const Legend legend = legend_of(entries_of(picture), kLeft, kWidth - kRight, box.top + 6, size);
  const Marks marks = marks_of(picture, range, box);
  box.top += 14 + legend.height + marks.height;
  return margins_of(box, size) + x_range_of(range) + (picture.gap ? "" : x_label_of(picture, box, size)) +
         y_range_of(picture, range, scale) + y_label_of(picture.label + scale.suffix, box, size) + legend.script +
         marks_script(marks, box, size) + ranking.script(box, size) + plot_of(picture, scale);
}

// The panel of the gaps: bands, means, zero, gate.
std::string gap_of(const Picture& picture, Box box, const Size& size) {
  const GapPanel& gap = *picture.gap;
  const Range range = gap_range(gap);
  const bool one = gap.curves.size() == 1;
  std::string data, plot;
  std::vector<Entry> entries;
  if (one) entries.push_back({gap.band_name, "lw 10 lc rgb '#D5D5D5'"});
  for (std::size_t k = 0; k < gap.curves.size(); ++k) {
    const GapCurve& curve = gap.curves[k];
    const std::string number = std::to_string(k);
    data += "$band" + number + " << END_OF_DATA\n";
    for (std::size_t i = 0; i < curve.mean.size(); ++i) {
      if (!std::isfinite(curve.low[i].y)) continue;
      data += format_double(curve.mean[i].x) + " " + format_double(curve.low[i].y) + " " +
              format_double(curve.high[i].y) + "\n";
    }
    data += "0 NaN NaN\nEND_OF_DATA\n";
    append_data("gap" + number, curve.mean, data);
    plot += (k == 0 ? "plot $band" : ", $band") + number + " using 1:2:3 with filledcurves fc rgb '#" +
            (one ? "D5D5D5" : std::string("D8") + kPalette.at(curve.style % kColours)) + "'";
  }
  const auto level = [](double y, const char* dash) {
    return ", " + format_double(y) + " with lines lw 1 dt " + dash + " lc rgb '#606060'";
  };
  plot += level(0, "1");
  for (std::size_t k = 0; k < gap.curves.size(); ++k) {
    const std::string line = one ? "lw 2 lc rgb '#000000'" : line_of(gap.curves[k].style, false);
    plot += ", $gap" + std::to_string(k) + " using 1:2 with lines " + line;
    entries.push_back({gap.curves[k].name, line});
  }
  if (gap.gate) {
    plot += level(*gap.gate, "(6,4)") + level(-*gap.gate, "(6,4)");
    entries.push_back({"gate", "lw 1 dt (6,4) lc rgb '#606060'"});
  }
  const Legend legend = legend_of(entries, kLeft, kWidth - kRight, box.top, size);
  box.top += legend.height + 6;
  return "unset label\nunset arrow\nunset logscale\nset ytics autofreq\n" + margins_of(box, size) +
         x_range_of(range_of_panels(picture)) + x_label_of(picture, box, size) + "set yrange [" +
         format_double(range.y0) + ":" + format_double(range.y1) + "]\n" + y_label_of(gap.label, box, size) +
         legend.script + data + plot + "\n";
}

std::string curves_script(const Picture& picture, Image image) {
  const Size size{kWidth, picture.gap ? kTallHeight : kHeight};
  const std::string style = terminal_of(image, static_cast<int>(size.width), static_cast<int>(size.height)) +
                            "set border 3 lw 1 lc rgb '#909090'\n"
                            "set tics nomirror out scale 0.5 textcolor rgb '#404040'\n"
                            "set grid lt 1 dt 1 lw 1 lc rgb '#e4e4e4'\nunset key\n"
                            "set format x '%.1s%c'\nset format y '%g'\n";
  const Ranking ranking(picture);
  const double right = kWidth - kRight - ranking.width();
  if (!picture.gap) return style + curves_of(picture, ranking, {kLeft, right, 0, size.height - kBottom}, size);
  const double middle = (1 - kGapPart) * size.height;
  return style + "set multiplot\n" + curves_of(picture, ranking, {kLeft, right, 0, middle - 44}, size) +
         gap_of(picture, {kLeft, right, middle, size.height - kBottom}, size) + "unset multiplot\n";
}

}  // namespace

std::vector<const Curve*> ranking_of(const Picture& picture) {
  std::vector<const Curve*> all;
  for (const Curve& curve : picture.curves) all.push_back(&curve);
  std::ranges::stable_sort(all, [&](const Curve* a, const Curve* b) {
    if (!std::isfinite(a->end) || !std::isfinite(b->end)) return std::isfinite(a->end) && !std::isfinite(b->end);
    return picture.most_is_best ? a->end > b->end : a->end < b->end;
  });
  return all;
}

void gnuplot_plot(const Picture& picture, Image image, const std::string& path) {
  run_gnuplot(curves_script(picture, image), image, path);
}

}  // namespace fp8::plot
