// The name of a plot, and what is drawn of small pictures.
#include "fp8/plot/plot.h"

#include <cmath>
#include <regex>

#include "fp8/base/file.h"
#include "fp8_test.h"
#include "layout.h"

namespace fp8::plot {
namespace {

TEST(Image, FormatByExtension) {
  EXPECT_EQ(image_of("a.svg"), Image::svg);
  EXPECT_EQ(image_of("a.png"), Image::png);
  EXPECT_THROW((void)image_of("a.pdf"), Error);
  EXPECT_THROW((void)image_of("svg"), Error);
}

TEST(Gnuplot, LabelsAreDrawnLiterally) {
  const std::vector<std::string> labels = {"lr-1e-3", "a.5_b{2}^3", "50% @x #y; $z", "it's \"so\"", "\\055\\n\\",
                                           "''",      "[1]:2,3/4",  "`id`",          "caf\u00e9 7", "\\"};
  const test::TemporaryFolder scratch;
  for (const std::string& label : labels) {
    Picture p;
    p.metric = p.label = label;
    p.curves.push_back({.name = label, .raw = {{1, 2}, {2, 3}}, .smooth = {}});
    const std::string svg = scratch.write("a.svg", "");
    gnuplot_plot(p, Image::svg, svg);
    const std::string text = read_text_file(svg, 1 << 20), drawn = "<text>" + label + "</text>";
    EXPECT_NE(text.find(drawn), text.rfind(drawn)) << label;  // in the axis label and in the legend
  }
  Picture p;
  p.metric = "loss";
  p.curves.push_back({.name = "a\n1\x1b[31m", .raw = {{1, 2}, {2, 3}}, .smooth = {}});
  const std::string svg = scratch.write("a.svg", "");
  gnuplot_plot(p, Image::svg, svg);
  EXPECT_NE(read_text_file(svg, 1 << 20).find("<text>a\\x0a1\\x1b[31m</text>"), std::string::npos);
}

// The x of all labels in an SVG, and whether two of the same height overlap by the widths that layout.h estimates.
TEST(Gnuplot, LabelsOfMarksStayInsideAndApart) {
  Picture p;
  p.metric = p.label = "loss";
  Curve curve{.name = "run", .raw = {}, .smooth = {}};
  for (int i = 0; i <= 100; ++i) curve.raw.push_back({static_cast<double>(i), 2});
  for (const int x : {10, 11, 12, 50, 97, 99})
    curve.marks.push_back({.x = static_cast<double>(x), .kind = MarkKind::phase, .text = "fp8 rowwise_with_gw_hp"});
  p.curves.push_back(curve);
  const test::TemporaryFolder scratch;
  const std::string svg = scratch.write("a.svg", "");
  gnuplot_plot(p, Image::svg, svg);
  const std::string text = read_text_file(svg, 1 << 20);
  const std::regex label(
      "translate\\(([0-9.]+),([0-9.]+)\\)[^<]*<text><tspan[^>]*>fp8 rowwise_with_gw_hp|"
      "translate\\(([0-9.]+),([0-9.]+)\\)[^<]*<text>fp8 rowwise_with_gw_hp");
  const double width = text_width("fp8 rowwise_with_gw_hp", kSmallFont);
  std::vector<std::pair<double, double>> places;
  for (std::sregex_iterator at(text.begin(), text.end(), label), end; at != end; ++at)
    places.emplace_back(std::stod((*at)[1].str() + (*at)[3].str()), std::stod((*at)[2].str() + (*at)[4].str()));
  ASSERT_GE(places.size(), 5U) << text.substr(0, 4000);
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_GE(places[i].first, 0);
    EXPECT_LE(places[i].first + width, 900);
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_TRUE(std::abs(places[i].second - places[j].second) > 10 ||
                  std::abs(places[i].first - places[j].first) > width)
          << i << " " << j;
  }
}

TEST(Layout, LabelsHaveRowsOfTheirOwn) {
  const auto placed = place_labels(
      {{.x = 10, .width = 50}, {.x = 20, .width = 50}, {.x = 200, .width = 50}, {.x = 290, .width = 50}}, 0, 300, 4);
  ASSERT_TRUE(placed[0] && placed[1] && placed[2] && placed[3]);
  EXPECT_EQ(placed[1]->row, 0U);
  EXPECT_EQ(placed[0]->row, 1U);
  EXPECT_EQ(placed[3]->from, 250) << "not beyond the right end";
  EXPECT_GT(placed[2]->row, placed[3]->row);
  EXPECT_FALSE(place_labels({{.x = 10, .width = 50}, {.x = 20, .width = 50}}, 0, 300, 1)[0]);
}

TEST(Layout, LongNamesAreCutInTheMiddle) {
  EXPECT_EQ(fitted("short", 100, kFont), "short");
  const std::string cut = fitted("sweep_recipe=tensorwise_lr=0.001", 150, kFont);
  EXPECT_LE(text_width(cut, kFont), 150);
  EXPECT_TRUE(cut.starts_with("sweep") && cut.ends_with("0.001")) << cut;
  EXPECT_EQ(without_shared_beginning({"s_lr=0.1", "s_lr=0.2"}), (std::vector<std::string>{"0.1", "0.2"}));
}

}  // namespace
}  // namespace fp8::plot
