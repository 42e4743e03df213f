// Gaps of sides through gnuplot.
#include "fp8/plot/gaps.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/text.h"
#include "gnuplot.h"

namespace fp8::plot {
namespace {

constexpr int kChartWidth = 900;                 // pixels
constexpr int kAboveRows = 74, kBelowRows = 44;  // heights above and below the rows
constexpr int kRowHeight = 34;                   // height of a row
constexpr double kLetter = 9.6, kGap = 24;       // width of a letter, and of the space between panels
constexpr std::size_t kLongestName = 36;         // characters

// Range of x in all panels: zero, all dots and intervals, and the gate if it is near.
std::pair<double, double> dots_range(const GapChart& chart) {
  double low = 0, high = 0;
  const auto include = [&](double v) { low = std::min(low, v), high = std::max(high, v); };
  for (const GapDotsPanel& panel : chart.panels) {
    for (const GapDots& row : panel.rows) {
      for (const double v : row.dots) include(v);
      if (row.mean && row.interval) include(*row.mean - *row.interval), include(*row.mean + *row.interval);
    }
  }
  if (chart.gate && *chart.gate < 4 * std::max(-low, high)) include(-*chart.gate), include(*chart.gate);
  if (low == high) low = -1e-3, high = 1e-3;
  const double room = (high - low) / 20;
  return {low - room, high + room};
}

std::string dots_data(const GapDotsPanel& panel, const std::string& number) {
  std::string dots = "$dots" + number + " << END_OF_DATA\n", means = "$means" + number + " << END_OF_DATA\n",
              intervals = "$intervals" + number + " << END_OF_DATA\n";
  for (std::size_t r = 0; r < panel.rows.size(); ++r) {
    const GapDots& row = panel.rows[r];
    const std::string y = " " + std::to_string(r) + "\n";
    for (const double v : row.dots) dots += format_double(v) + y;
    if (row.mean) means += format_double(*row.mean) + y;
    if (row.mean && row.interval)
      intervals += format_double(*row.mean) + " " + std::to_string(r) + " " + format_double(*row.mean - *row.interval) +
                   " " + format_double(*row.mean + *row.interval) + "\n";
  }
  const std::string end = "0 NaN NaN NaN\nEND_OF_DATA\n";
  return dots + end + means + end + intervals + end;
}

std::string dots_panel(const GapChart& chart, std::size_t number) {
  const GapDotsPanel& panel = chart.panels[number];
  const auto [low, high] = dots_range(chart);
  const std::string n = std::to_string(number);
  std::string script = "set title " + quoted(panel.title) + " offset 0,-0.6 textcolor rgb '#202020'\nset xrange [" +
                       format_double(low) + ":" + format_double(high) + "]\nset xtics " +
                       format_double(step_of(high - low)) + "\n";
  if (chart.gate) {
    script += "set object 1 rectangle from first " + format_double(std::max(low, -*chart.gate)) +
              ", graph 0 to first " + format_double(std::min(high, *chart.gate)) +
              ", graph 1 behind fc rgb '#eef4ea' fs solid noborder\n";
  }
  return script + "set arrow 1 from 0, graph 0 to 0, graph 1 nohead lw 1 lc rgb '#888888'\nplot $intervals" + n +
         " using 1:2:3:4:($2-0.18):($2+0.18) with boxxyerror fs solid noborder fc rgb '#9bbcdb', $means" + n +
         " using 1:($2-0.27):(0):(0.54) with vectors nohead lw 2 lc rgb '#1f4e79', $dots" + n +
         " using 1:2 with points pt 7 ps 0.45 lc rgb '#333333'\n";
}

std::string gaps_script(const GapChart& chart, Image image) {
  const int height = kAboveRows + kBelowRows + kRowHeight * static_cast<int>(chart.names.size());
  std::size_t longest = 0;
  std::string tics, data;
  for (std::size_t r = 0; r < chart.names.size(); ++r) {
    const std::string name = excerpt(chart.names[r], kLongestName);
    longest = std::max(longest, name.size());
    tics += (r == 0 ? "" : ", ") + quoted(name) + " " + std::to_string(r);
  }
  for (std::size_t p = 0; p < chart.panels.size(); ++p) data += dots_data(chart.panels[p], std::to_string(p));
  const auto panels = static_cast<double>(chart.panels.size());
  const double left = 16 + kLetter * static_cast<double>(longest),
               width = (kChartWidth - left - 20 - kGap * (panels - 1)) / panels;
  const auto margin = [](const char* side, double at) {
    return std::string("set ") + side + "margin at screen " + format_short(at, 6) + "\n";
  };
  std::string what = "bar: 95 % interval of the mean; dots: pairs";
  if (chart.gate) what += "; shaded: within " + format_short(*chart.gate, 4);
  std::string script = terminal_of(image, kChartWidth, height) + data +
                       "set border 1 lw 1 lc rgb '#909090'\nset tics nomirror scale 0.4 textcolor rgb '#404040'\n"
                       "set grid xtics lt 1 dt 1 lw 1 lc rgb '#dddddd'\nunset key\nset format x '%g'\nset yrange [" +
                       format_short(static_cast<double>(chart.names.size()) - 0.5, 8) + ":-0.5]\nset ytics (" + tics +
                       ")\nset multiplot\n" + margin("t", 1 - static_cast<double>(kAboveRows) / height) +
                       margin("b", static_cast<double>(kBelowRows - 10) / height) + "set label 1 " +
                       quoted(chart.title) + " at screen 0.5," + format_short(1 - 15.0 / height, 6) +
                       " center textcolor rgb '#202020'\nset label 2 " + quoted(what) + " at screen 0.5," +
                       format_short(1 - 33.0 / height, 6) + " center textcolor rgb '#666666' font ',11'\n";
  for (std::size_t p = 0; p < chart.panels.size(); ++p) {
    const double from = left + static_cast<double>(p) * (width + kGap);
    script += margin("l", from / kChartWidth) + margin("r", (from + width) / kChartWidth) +
              (p == 0 ? "" : "unset ytics\nunset label 1\nunset label 2\n") + dots_panel(chart, p);
  }
  return script + "unset multiplot\n";
}

}  // namespace

void gnuplot_gaps(const GapChart& chart, Image image, const std::string& path) {
  run_gnuplot(gaps_script(chart, image), image, path);
}

}  // namespace fp8::plot
