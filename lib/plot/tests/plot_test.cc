// The name of a plot, and what is drawn of small pictures.
#include "fp8/plot/plot.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "fp8/base/file.h"
#include "fp8/plot/bars.h"
#include "fp8/plot/gaps.h"
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

// A text of an SVG, and the rectangle that it needs by the widths that layout.h estimates.
struct Drawn {
  std::string text;
  double left, right, top, bottom;
  bool ends;  // its position is its end, whatever the font
};

std::vector<Drawn> texts_of(const std::string& svg) {
  const std::regex group(
      "translate\\(([0-9.]+),([0-9.]+)\\)( "
      "rotate\\((270|-90|90)\\))?\"[^<]*font-size=\"([0-9.]+)\"[^<]*text-anchor=\"([a-z]+)\">\\s*"
      "<text>(<tspan(?: font-family=\"[^\"]*\")?(?: font-size=\"([0-9.]+)\")?[^>]*>)?([^<]+)<");
  std::vector<Drawn> all;
  for (std::sregex_iterator at(svg.begin(), svg.end(), group), end; at != end; ++at) {
    const std::smatch& m = *at;
    const double x = std::stod(m[1]), y = std::stod(m[2]), font = std::stod(m[8].matched ? m[8] : m[5]);
    const double width = text_width(m[9].str(), font), before = m[6] == "start"    ? 0
                                                                : m[6] == "middle" ? width / 2
                                                                                   : width;
    const double above = 0.75 * font, below = 0.2 * font;
    if (!m[3].matched) {
      all.push_back({m[9], x - before, x - before + width, y - above, y + below, m[6] == "end"});
    } else if (m[4] == "90") {
      all.push_back({m[9], x - below, x + above, y - before, y - before + width, m[6] == "end"});
    } else {
      all.push_back({m[9], x - above, x + below, y + before - width, y + before, m[6] == "end"});
    }
  }
  return all;
}

// Draws a picture by draw(image, path), and checks that no text leaves it or overlaps another. Returns the texts.
template <class Draw>
std::vector<Drawn> checked_texts(int height, Draw draw) {
  const test::TemporaryFolder scratch;
  const std::string path = scratch.write("a.svg", "");
  draw(Image::svg, path);
  const std::vector<Drawn> all = texts_of(read_text_file(path, 1 << 22));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Drawn& a = all[i];
    EXPECT_TRUE(a.left >= 0 && a.right <= 900 && a.top >= 0 && a.bottom <= height)
        << a.text << " " << a.left << " " << a.right << " " << a.top << " " << a.bottom;
    for (std::size_t j = 0; j < i; ++j) {
      const Drawn& b = all[j];
      EXPECT_FALSE(a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
          << a.text << ", " << b.text;
    }
  }
  return all;
}

std::vector<Drawn> checked_texts(const Picture& p) {
  return checked_texts(p.gap ? 700 : 506, [&](Image image, const std::string& path) { gnuplot_plot(p, image, path); });
}

std::size_t count_of(const std::vector<Drawn>& all, const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count(all, text, &Drawn::text));
}

// Checks that the texts that end in `suffix` have `each` copies below each other, as the labels of one axis have.
void expect_aligned(const std::vector<Drawn>& all, const std::string& suffix, std::size_t each) {
  std::size_t found = 0;
  for (const Drawn& t : all) {
    if (!t.text.ends_with(suffix)) continue;
    ++found;
    const auto below = [&](const Drawn& other) { return other.text == t.text && std::abs(other.left - t.left) < 0.5; };
    EXPECT_EQ(static_cast<std::size_t>(std::ranges::count_if(all, below)), each) << t.text;
  }
  EXPECT_GE(found, 2 * each);
}

Picture of_curves(int n) {
  Picture p{.metric = "loss", .label = "loss (nats per token)", .by_tokens = true, .curves = {}, .gap = {}};
  for (int k = 0; k < n; ++k) {
    Curve& curve = p.curves.emplace_back();
    curve.name = "tensorwise_lr=0.00" + std::to_string(k) + "_seed=1",
    curve.style = static_cast<std::size_t>(k) % kColours;
    for (int i = 1; i <= 40; ++i) curve.raw.push_back({1e3 * i, 2 + std::exp(-i / 10.0) + 0.01 * k});
  }
  return p;
}

TEST(Gnuplot, LabelsOfMarksStayInsideAndApart) {
  Picture p = of_curves(1);
  for (const int x : {4, 5, 6, 20, 38, 39})
    p.curves[0].marks.push_back({.x = 1e3 * x, .kind = MarkKind::phase, .text = "fp8 rowwise_with_gw_hp"});
  const std::vector<Drawn> texts = checked_texts(p);
  EXPECT_GE(count_of(texts, "fp8 rowwise_with_gw_hp"), 5U);
  EXPECT_EQ(count_of(texts, "tokens seen"), 1U);
  std::set<bool> at_edge;
  for (const Drawn& t : texts) {
    if (t.text != "fp8 rowwise_with_gw_hp") continue;
    EXPECT_EQ(t.ends, t.right > 895) << t.right;  // the font of PNG is wider
    at_edge.insert(t.ends);
  }
  EXPECT_EQ(at_edge.size(), 2U);
}

// The legend of two sides with three runs each has a sample of every line: colours and dashes.
TEST(Gnuplot, TheLegendHasTheDashesOfTheCurves) {
  Picture p = of_curves(6);
  for (std::size_t i = 0; i < 6; ++i) p.curves[i].style = i / 3 + kColours * (i % 3);
  const test::TemporaryFolder scratch;
  const std::string path = scratch.write("a.svg", "");
  gnuplot_plot(p, Image::svg, path);
  const std::string svg = read_text_file(path, 1 << 22);
  const std::regex dashes("stroke-dasharray='([0-9.,]+)'");
  std::map<std::string, int> lines;
  for (std::sregex_iterator at(svg.begin(), svg.end(), dashes), end; at != end; ++at)
    ++lines[(*at)[1].str().substr(0, 2)];
  EXPECT_EQ(lines, (std::map<std::string, int>{{"14", 4}, {"4.", 4}}));  // of two colours, a curve and its sample
}

// Behind its last finite value a curve has a mark, also if nothing else is drawn there.
TEST(Gnuplot, ADivergenceIsMarked) {
  Picture p = of_curves(1);
  p.curves[0].raw.resize(30);
  for (int i = 31; i <= 40; ++i) p.curves[0].raw.push_back({1e3 * i, std::nan("")});
  p.curves[0].marks.push_back({.x = 31e3, .kind = MarkKind::setting, .text = "not finite"});
  EXPECT_EQ(count_of(checked_texts(p), "not finite"), 1U);
}

TEST(Gnuplot, TextsOfManyCurvesAndGapsStayInsideAndApart) {
  for (const int n : {3, 8, 12, 21, 40}) {
    Picture p = of_curves(n);
    p.ranked = n > static_cast<int>(kMostNamed);
    for (std::size_t g = 0; p.ranked && g < kColours; ++g) p.groups.push_back({"fp8 recipe " + std::to_string(g), g});
    EXPECT_EQ(count_of(checked_texts(p), "tokens seen"), 1U) << n;
    EXPECT_EQ(count_of(checked_texts(p), "lowest at the end"), p.ranked ? 1U : 0U) << n;
    GapPanel& gap = p.gap.emplace();
    gap.label = "gap (nats per token)";
    for (std::size_t k = 0; k < 8; ++k) {
      GapCurve& curve = gap.curves.emplace_back();
      curve.name = "rowwise_with_gw_hp " + std::to_string(k) + " - bf16", curve.style = k;
      for (int i = 1; i <= 40; ++i) {
        curve.mean.push_back({1e3 * i, 0.01});
        curve.low.push_back({1e3 * i, -0.016}), curve.high.push_back({1e3 * i, 0.021});  // wide numbers
      }
    }
    const std::vector<Drawn> texts = checked_texts(p);
    EXPECT_EQ(count_of(texts, "tokens seen"), 1U) << n;
    expect_aligned(texts, ".0k", 2);
  }
}

// Five meshes under each of seven recipes: every name is drawn.
TEST(Gnuplot, NamesOfManyBarsStayInsideAndApart) {
  BarChart chart{.title = "model", .label = "GiB", .names = {}, .parts = {{"moments"}}, .limit = {}};
  for (int i = 0; i < 35; ++i) {
    chart.names.push_back("rowwise_with_gw_hp " + std::to_string(i));
    chart.parts[0].values.push_back(40 + i);
  }
  const std::vector<Drawn> texts =
      checked_texts(506, [&](Image image, const std::string& path) { gnuplot_bars(chart, image, path); });
  for (const std::string& name : chart.names) EXPECT_EQ(count_of(texts, name), 1U) << name;
}

TEST(Gnuplot, PanelsOfGapsHaveOneScale) {
  GapChart chart{.title = "gaps", .names = {"fp8"}, .panels = {}, .gate = {}};
  chart.panels.push_back({"training loss", {{{0.01, 0.02}, 0.015, 0.03}}});
  chart.panels.push_back({"evaluation loss", {{{0.001, 0.002}, 0.0015, 0.003}}});
  const test::TemporaryFolder scratch;
  const std::string path = scratch.write("a.svg", "");
  gnuplot_gaps(chart, Image::svg, path);
  std::map<std::string, int> tics;
  for (const Drawn& t : texts_of(read_text_file(path, 1 << 22)))
    if (t.text.starts_with("0") || t.text.starts_with("-0")) ++tics[t.text];
  EXPECT_GE(tics.size(), 3U);
  for (const auto& [tic, count] : tics) EXPECT_EQ(count, 2) << tic;
}

// A gap that begins and ends elsewhere than the curves, with longer labels, is drawn below the same x axis.
TEST(Terminal, PanelsHaveOneAxis) {
  Picture p = of_curves(1);
  GapCurve& curve = p.gap.emplace().curves.emplace_back();
  for (int i = 10; i <= 20; ++i) {
    curve.mean.push_back({1e3 * i, 0.000123});
    curve.low.push_back({1e3 * i, -0.000456}), curve.high.push_back({1e3 * i, 0.000789});
  }
  const std::string text = terminal_plot(p, 60, 12, false);
  std::vector<std::string> axes;
  for (std::size_t from = 0, end = 0; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
    if (text.find(" tokens\n", from) == end - 7) axes.push_back(text.substr(from, end - from));
  ASSERT_EQ(axes.size(), 2U) << text;
  EXPECT_EQ(axes[0], axes[1]);
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
