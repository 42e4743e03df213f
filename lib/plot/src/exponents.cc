// Histograms of exponents through gnuplot, and as text.
#include "fp8/plot/exponents.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8/base/text.h"
#include "gnuplot.h"

namespace fp8::plot {
namespace {

constexpr int kLeastWidth = 1200, kPanelWidth = 390, kPanelHeight = 460;  // pixels
constexpr double kLeastShare = 1e-4;                                      // %; the least share that is drawn
constexpr std::int64_t kBelow = 4, kMostBelow = 14, kAbove = 3;  // exponents below the range of a format, and above it
constexpr std::size_t kLongestWorst = 22, kLongestTitle = 150;   // characters

struct PanelLimits {
  std::int64_t low = 0, high = 0;
};

// The exponents that are drawn: the range of the format, and the shares that are not too far below.
PanelLimits limits_of(const ExponentPanel& panel) {
  std::int64_t first = panel.range.zero - kBelow;
  for (std::size_t i = 0; i < panel.shares.size(); ++i) {
    if (100 * std::max(panel.shares[i], panel.worst_shares[i]) < kLeastShare) continue;
    first = std::min(first, panel.lowest + static_cast<std::int64_t>(i) - 1);
    break;
  }
  return {std::max(first, panel.range.zero - kMostBelow), panel.range.largest + kAbove};
}

double share_at(const ExponentPanel& panel, const std::vector<double>& shares, std::int64_t exponent) {
  const std::int64_t i = exponent - panel.lowest;
  return i < 0 || i >= static_cast<std::int64_t>(shares.size()) ? 0 : shares[static_cast<std::size_t>(i)];
}

// Sum of the shares of exponents [begin, end].
double sum_of(const ExponentPanel& panel, const std::vector<double>& shares, std::int64_t begin, std::int64_t end) {
  double sum = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const std::int64_t exponent = panel.lowest + static_cast<std::int64_t>(i);
    sum += exponent >= begin && exponent <= end ? shares[i] : 0;
  }
  return sum;
}

// "0.1 %"; 100 % has three digits.
std::string percent_of(double percent) { return format_short(percent, percent < 99.5 ? 2 : 3) + " %"; }

// "zero 0.1 %, subnormal 2 %".
std::string lost(const ExponentPanel& panel, const std::vector<double>& shares) {
  const auto percent = [&](std::int64_t begin, std::int64_t end) {
    return percent_of(100 * sum_of(panel, shares, begin, end));
  };
  return "zero " + percent(INT64_MIN, panel.range.zero) + ", subnormal " +
         percent(panel.range.zero + 1, panel.range.normal - 1);
}

std::string shares_data(const ExponentPanel& panel, const std::string& number) {
  const PanelLimits limits = limits_of(panel);
  std::string data = "$shares" + number + " << END_OF_DATA\n";
  for (std::int64_t e = limits.low; e <= limits.high; ++e) {
    const auto text = [&](const std::vector<double>& shares, double least) {
      const double percent = 100 * share_at(panel, shares, e);
      return percent < kLeastShare ? format_double(least) : format_double(percent);
    };
    // histeps joins the neighbours of a NaN, which would show shares where there are none.
    data +=
        std::to_string(e) + " " + text(panel.shares, NAN) + " " + text(panel.worst_shares, kLeastShare / 1e3) + "\n";
  }
  return data + "END_OF_DATA\n";
}

// A background over exponents (from, to], and its name at the top.
std::string area(int number, double from, double to, const std::string& colour, const std::string& name) {
  const std::string left = format_short(from, 6), right = format_short(to, 6), n = std::to_string(number);
  return "set object " + n + " rectangle from " + left + ", graph 0 to " + right + ", graph 1 behind fc rgb '" +
         colour + "' fs solid noborder\nset label " + n + " " + quoted(name) + " at " +
         format_short((from + to) / 2, 6) + ", graph 0.96 center textcolor rgb '#505050' font ',9'\n";
}

std::string shares_panel(const ExponentPanel& panel, const std::string& number) {
  const PanelLimits limits = limits_of(panel);
  const double low = static_cast<double>(limits.low) - 0.5, high = static_cast<double>(limits.high) + 0.5,
               zero = static_cast<double>(panel.range.zero) + 0.5,
               normal = static_cast<double>(panel.range.normal) - 0.5,
               largest = static_cast<double>(panel.range.largest) + 0.5;
  return "set xrange [" + format_short(low, 6) + ":" + format_short(high, 6) + "]\n" +
         area(1, low, zero, "#f6d5d0", "zero") + area(2, zero, normal, "#fbeccb", "sub.") +
         area(3, normal, largest, "#e7f1e3", "normal codes") + area(4, largest, high, "#f6d5d0", "sat.") +
         "set title " + quoted(panel.title) + " offset 0,-0.4 textcolor rgb '#202020'\nset label 5 " +
         quoted("all: " + lost(panel, panel.shares)) +
         " at graph 0.5, screen 0.085 center textcolor rgb '#1f4e79' font ',10'\nset label 6 " +
         quoted(excerpt(panel.worst, kLongestWorst) + ": " + lost(panel, panel.worst_shares)) +
         " at graph 0.5, screen 0.035 center textcolor rgb '#b03a2e' font ',10'\nplot $shares" + number +
         " using 1:2 with boxes fs solid noborder fc rgb '#6f9cc4', $shares" + number +
         " using 1:3 with histeps lw 2 lc rgb '#b03a2e'\n";
}

std::string exponents_script(const ExponentChart& chart, Image image) {
  const auto panels = static_cast<double>(chart.panels.size());
  std::string script =
      terminal_of(image, std::max(kLeastWidth, kPanelWidth * static_cast<int>(chart.panels.size())), kPanelHeight);
  for (std::size_t p = 0; p < chart.panels.size(); ++p) script += shares_data(chart.panels[p], std::to_string(p));
  constexpr double kLeft = 0.085, kRight = 0.985, kGap = 0.02;
  const double width = (kRight - kLeft - kGap * (panels - 1)) / panels;
  script +=
      "set border 3 lw 1 lc rgb '#909090'\nset tics nomirror scale 0.4 textcolor rgb '#404040'\nunset key\n"
      "set logscale y\nset yrange [" +
      format_double(kLeastShare) +
      ":400]\nset format y '%g'\nset boxwidth 0.86\nset ytics (0.0001, 0.001, 0.01, 0.1, 1, 10, 100)\n"
      "set ylabel 'share of the nonzero elements (%)' textcolor rgb '#202020'\n"
      "set xlabel 'log2 of the scaled magnitude' offset 0,0.4 textcolor rgb '#202020'\nset multiplot\n"
      "set tmargin at screen 0.84\nset bmargin at screen 0.24\nset label 7 " +
      quoted(excerpt(chart.title, kLongestTitle)) + " at screen 0.5, 0.955 center textcolor rgb '#202020'\n";
  for (std::size_t p = 0; p < chart.panels.size(); ++p) {
    const double from = kLeft + static_cast<double>(p) * (width + kGap);
    script += "set lmargin at screen " + format_short(from, 6) + "\nset rmargin at screen " +
              format_short(from + width, 6) + "\n" + (p == 0 ? "" : "unset ylabel\nset format y ''\nunset label 7\n") +
              shares_panel(chart.panels[p], std::to_string(p));
  }
  return script + "unset multiplot\n";
}

// The bar and the percentage of an exponent, in `width` characters.
std::string bar(const ExponentPanel& panel, std::int64_t exponent, std::size_t width) {
  constexpr std::size_t kText = 8;  // of a percentage
  const double percent = 100 * share_at(panel, panel.shares, exponent);
  const std::string code = exponent > panel.range.largest || exponent <= panel.range.zero ? "\u2591"
                           : exponent < panel.range.normal                                ? "\u2592"
                                                                                          : "\u2588";
  const std::size_t most = width - kText - 2;
  double greatest = kLeastShare;
  for (const double share : panel.shares) greatest = std::max(greatest, 100 * share);
  const auto cells =
      percent < kLeastShare
          ? 0
          : std::max<std::size_t>(1, static_cast<std::size_t>(percent / greatest * static_cast<double>(most)));
  std::string out;
  for (std::size_t i = 0; i < cells; ++i) out += code;
  const std::string text = percent < kLeastShare ? "" : " " + percent_of(percent);
  return out + text + std::string(width - std::min(width, cells + text.size()), ' ');
}

}  // namespace

void gnuplot_exponents(const ExponentChart& chart, Image image, const std::string& path) {
  run_gnuplot(exponents_script(chart, image), image, path);
}

std::string terminal_exponents(const ExponentChart& chart, int columns) {
  constexpr std::size_t kMargin = 6, kLeastPanel = 20;
  const std::size_t width =
      std::max(kLeastPanel, (static_cast<std::size_t>(std::max(columns, 40)) - kMargin) / chart.panels.size());
  PanelLimits limits{INT64_MAX, INT64_MIN};
  std::string out =
      terminal_safe(chart.title) + "\n" + "\u2588 normal codes   \u2592 subnormal   \u2591 zero or saturated\n\n";
  std::string titles = "log2  ";
  for (const ExponentPanel& panel : chart.panels) {
    const PanelLimits own = limits_of(panel);
    limits = {std::min(limits.low, own.low), std::max(limits.high, own.high)};
    const std::string title = terminal_safe(panel.title);
    titles += title + std::string(width - std::min(width, title.size()), ' ');
  }
  const auto add = [&](std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add(titles);
  const auto empty = [&](std::int64_t e) {
    return std::ranges::all_of(chart.panels,
                               [&](const ExponentPanel& p) { return 100 * share_at(p, p.shares, e) < kLeastShare; });
  };
  while (limits.high > limits.low && empty(limits.high)) --limits.high;
  while (limits.low < limits.high && empty(limits.low)) ++limits.low;
  for (std::int64_t e = limits.high; e >= limits.low; --e) {
    std::string line = std::to_string(e);
    line = std::string(kMargin - 2 - std::min(kMargin - 2, line.size()), ' ') + line + "  ";
    for (const ExponentPanel& panel : chart.panels) line += bar(panel, e, width);
    add(line);
  }
  for (const ExponentPanel& panel : chart.panels)
    add(terminal_safe(panel.title + ": " + lost(panel, panel.shares) + "; " + panel.worst + ": " +
                      lost(panel, panel.worst_shares)));
  return out;
}

}  // namespace fp8::plot
