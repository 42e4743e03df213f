// Stacked bars through gnuplot.
#include "fp8/plot/bars.h"

#include <algorithm>
#include <array>

#include "fp8/base/text.h"
#include "gnuplot.h"

namespace fp8::plot {
namespace {

constexpr int kBarsWidth = 900, kBarsHeight = 506, kIntervalsHeight = 254;  // pixels
// From dark to light within each hue, so that neighbours differ.
constexpr std::array<const char*, kBarColors> kFills{"#1f4e79", "#5b9bd5", "#bdd7ee", "#548235", "#a9d18e", "#bf9000",
                                                     "#ffd966", "#7f6084", "#c9b1d0", "#843c0c", "#f4b183", "#375623",
                                                     "#00808a", "#8fd3d8", "#636363", "#a6a6a6"};

std::string data_of(const BarChart& chart) {
  std::string text = "$bars << END_OF_DATA\n";
  for (std::size_t i = 0; i < chart.names.size(); ++i) {
    text += quoted(excerpt(chart.names[i], 24));
    for (const BarPart& part : chart.parts) text += " " + format_double(part.values[i]);
    if (chart.intervals)
      text += " " + format_double(chart.intervals->values[i].first) + " " +
              format_double(chart.intervals->values[i].second);
    text += "\n";
  }
  return text + "END_OF_DATA\n";
}

// Whether the limit is drawn: far above the bars it would leave them no room.
bool draws_limit(const BarChart& chart) {
  double highest = 0;
  for (std::size_t i = 0; i < chart.names.size(); ++i) {
    double sum = 0;
    for (const BarPart& part : chart.parts) sum += part.values[i];
    highest = std::max(highest, sum);
  }
  return chart.limit && *chart.limit < 2.5 * highest;
}

std::string columns_of_bars(const BarChart& chart) {
  std::string text = "plot ";
  for (std::size_t p = 0; p < chart.parts.size(); ++p)
    text += (p == 0 ? "" : ", ") + std::string("$bars using ") + std::to_string(p + 2) + (p == 0 ? ":xtic(1)" : "") +
            " title " + quoted(chart.parts[p].name) + " lc rgb '" +
            kFills[chart.parts[p].color.value_or(p) % kFills.size()] + "'";
  if (draws_limit(chart))
    text +=
        ", " + format_double(*chart.limit) + " with lines lw 2 dt 2 lc rgb '#c00000' title " + quoted(chart.limit_name);
  return text + "\n";
}

// How the names of so many bars are written without overlap; smaller ones for up to 45 bars.
std::string rotation_of(std::size_t names) {
  return names > 12 ? " rotate by -90 font ',9'" : names > 5 ? " rotate by -25" : "";
}

std::string bars_script(const BarChart& chart, Image image) {
  const int height = kBarsHeight + (chart.intervals ? kIntervalsHeight : 0);
  const std::string range = "set xrange [-0.6:" + format_double(static_cast<double>(chart.names.size()) - 0.4) + "]\n";
  std::string script = terminal_of(image, kBarsWidth, height) + data_of(chart) +
                       "set border 3 lw 1 lc rgb '#909090'\nset tics nomirror scale 0.4 textcolor rgb '#404040'\n"
                       "set grid ytics lt 1 dt 1 lw 1 lc rgb '#dddddd'\nset lmargin 12\nset rmargin 26\n" +
                       range;
  const auto share = [&](int pixels) { return format_short(static_cast<double>(pixels) / height, 6); };
  if (chart.intervals) {
    const std::size_t low = chart.parts.size() + 2;
    const std::string columns =
        std::to_string(low) + ":" + std::to_string(low) + ":" + std::to_string(low + 1) + ":" + std::to_string(low + 1);
    script += "set multiplot\nset origin 0," + share(kBarsHeight) + "\nset size 1," + share(kIntervalsHeight) +
              "\nset title " + quoted(chart.title) + " textcolor rgb '#202020'\nset ylabel " +
              quoted(chart.intervals->label) +
              "\nset yrange [0:*]\nset boxwidth 0.3\nunset key\nset xtics format ''\nplot $bars using 0:" + columns +
              " with candlesticks fs solid lc rgb '#1f4e79' notitle\nunset title\nset origin 0,0\nset size 1," +
              share(kBarsHeight) + "\n";
  } else {
    script += "set title " + quoted(chart.title) + " textcolor rgb '#202020'\n";
  }
  script +=
      "set style data histograms\nset style histogram rowstacked\nset style fill solid noborder\n"
      "set xtics format '%g'" +
      rotation_of(chart.names.size()) +
      "\nset boxwidth 0.6\nset yrange [0:*]\nset key outside right top reverse Left invert\nset ylabel " +
      quoted(chart.label) + "\n" + columns_of_bars(chart);
  return script + (chart.intervals ? "unset multiplot\n" : "");
}

}  // namespace

void gnuplot_bars(const BarChart& chart, Image image, const std::string& path) {
  run_gnuplot(bars_script(chart, image), image, path);
}

}  // namespace fp8::plot
