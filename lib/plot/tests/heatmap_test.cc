// Heatmaps and histograms of exponents as text, and that gnuplot draws them.
#include "fp8/plot/heatmap.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "fp8/base/file.h"
#include "fp8/plot/exponents.h"
#include "fp8_test.h"

namespace fp8::plot {
namespace {

Heatmap by_layer() {
  Heatmap map;
  map.title = "title", map.label = "dB";
  map.rows = {"0", "11"}, map.columns = {"q_proj", "up"};
  map.panels = {{"input", {0.25, 3, NAN, 1.5}}};
  map.low = 0, map.high = 3;
  return map;
}

TEST(Heatmap, TextHasTheValuesWhereThereIsSpace) {
  EXPECT_EQ(terminal_heatmap(by_layer(), 40, false),
            "title\n\ninput\n   q_proj     up\n0    0.25      3\n11      -    1.5\n");
  EXPECT_HOLDS(terminal_heatmap(by_layer(), 40, true),
               "   0.25\x1b[31m      3\x1b[0m\n11      -\x1b[33m    1.5\x1b[0m\n");
}

TEST(Heatmap, TextHasShadesWhereThereIsNone) {
  Heatmap map = by_layer();
  map.columns.clear();
  map.steps = {1, 9, 20};
  EXPECT_EQ(terminal_heatmap(map, 8, false),
            "title\n\u00b7 0 to \u2588 3 and more; blank: no value\n\ninput\n   1 20\n0  \u00b7\u2588\n11  \u2592\n");
}

TEST(Heatmap, WhatIsNotFiniteHasAMarkOfItsOwn) {
  Heatmap map = by_layer();
  map.panels[0].values[1] = HUGE_VAL;
  map.panels[0].values[0] = -HUGE_VAL;
  EXPECT_EQ(terminal_heatmap(map, 40, false),
            "title\n!: not finite\n\ninput\n   q_proj     up\n0    -inf      !\n11      -    1.5\n");
  map.columns.clear();
  map.steps = {1, 9, 20};
  EXPECT_EQ(terminal_heatmap(map, 8, false),
            "title\n\u00b7 0 to \u2588 3 and more; blank: no value; !: not finite\n\ninput\n   1 20\n0  \u00b7!\n11  "
            "\u2592\n");
}

ExponentChart chart() {
  ExponentPanel panel;
  panel.title = "weight, e4m3", panel.worst = "1 up_proj";
  panel.range = {-11, -6, 8};
  panel.lowest = -12;
  panel.shares = {0.02, 0, 0.18, 0, 0, 0, 0.8};
  panel.worst_shares = {0.5, 0, 0, 0, 0, 0, 0.5};
  return {"exponents", {panel}};
}

TEST(Exponents, TextHasABarForEachExponent) {
  const std::string text = terminal_exponents(chart(), 40);
  EXPECT_HOLDS(text,
               "  -6  "
               "\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588\u2588"
               "\u2588\u2588\u2588\u2588\u2588\u2588\u2588 80 %\n  -7\n");
  EXPECT_HOLDS(text, " -10  \u2592\u2592\u2592\u2592\u2592 18 %\n -11\n -12  \u2591 2 %\n");
  EXPECT_HOLDS(text, "weight, e4m3: zero 2 %, subnormal 18 %; 1 up_proj: zero 50 %, subnormal 0 %\n");
}

// The y of the points of the line in an SVG, from the paths of its colour; larger is lower.
std::vector<double> heights_of_line(const std::string& svg) {
  const std::regex path("stroke='rgb\\(176,  58,  46\\)'  d='([^']*)'"), point("[ML][0-9.]+,([0-9.]+)");
  std::vector<double> heights;
  for (std::sregex_iterator p(svg.begin(), svg.end(), path), none; p != none; ++p) {
    const std::string points = (*p)[1];
    for (std::sregex_iterator at(points.begin(), points.end(), point); at != none; ++at)
      heights.push_back(std::stod((*at)[1]));
  }
  return heights;
}

TEST(Exponents, TheLineFallsToTheAxisBetweenShares) {
  const test::TemporaryFolder scratch;
  const std::string path = scratch.write("a.svg", "");
  gnuplot_exponents(chart(), Image::svg, path);
  const std::vector<double> heights = heights_of_line(read_text_file(path, 1 << 20));
  const double highest = *std::ranges::min_element(heights), lowest = *std::ranges::max_element(heights);
  ASSERT_GT(lowest, highest + 100);
  EXPECT_GE(std::ranges::count(heights, lowest), 4) << "before, twice between and after the shares";
}

TEST(Exponents, FourPanelsMakeAWiderPicture) {
  ExponentChart four = chart();
  four.panels.assign(4, four.panels[0]);
  const test::TemporaryFolder scratch;
  const std::string path = scratch.write("a.svg", "");
  gnuplot_exponents(four, Image::svg, path);
  EXPECT_HOLDS(read_text_file(path, 1 << 20), "viewBox=\"0 0 1560 460\"");
}

TEST(Exponents, AndHeatmapsAreDrawn) {
  const test::TemporaryFolder scratch;
  const std::string svg = scratch.write("a.svg", "");
  gnuplot_exponents(chart(), Image::svg, svg);
  EXPECT_HOLDS(read_text_file(svg, 1 << 20), "<text>1 up_proj: zero 50 %, subnormal 0 %</text>");
  gnuplot_heatmap(by_layer(), Image::svg, svg);
  for (const char* name : {"<text>q_proj</text>", "<text>11</text>"}) EXPECT_HOLDS(read_text_file(svg, 1 << 20), name);
}

}  // namespace
}  // namespace fp8::plot
