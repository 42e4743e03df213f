// Plots of comparisons, styles, marks, and the moving mean at the start.
#include <cmath>
#include <set>

#include "fp8/base/file.h"
#include "fp8/log/picture.h"
#include "run_text.h"

namespace fp8::log {
namespace {

using namespace plot;

// A run with a seed: a loss that falls from 6 to 2, with steps alternately above and below, `gap` higher.
Log falling(int seed, double gap, int n = 400) {
  std::string text = R"({"type":"run","config":{"seed":)" + std::to_string(seed) + "}}\n";
  for (int i = 1; i <= n; ++i) {
    const double noise = i % 2 == 0 ? 0.05 : -0.05;
    text += step(i, 100 * i, std::to_string(2 + 4 * std::exp(-i / 20.0) + noise + gap));
  }
  return run_of(text, "run" + std::to_string(seed) + ".jsonl");
}

std::vector<Log> side(int pairs, double gap) {
  std::vector<Log> runs;
  for (int seed = 1; seed <= pairs; ++seed) runs.push_back(falling(seed, gap * seed));
  return runs;
}

TEST(Smooth, DoesNotLagAtTheStart) {
  const Log run = falling(1, 0);
  const Curve curve = picture({&run, 1}, "loss").curves.at(0);
  ASSERT_FALSE(curve.smooth.empty());
  for (const Point& p : curve.smooth) {
    const double step = p.x / 100;
    EXPECT_NEAR(p.y, 2 + 4 * std::exp(-step / 20), step < 12 ? 0.06 : 0.04) << step;
  }
}

TEST(Style, ManyRunsLookDifferent) {
  std::vector<Log> runs;
  for (int i = 0; i < 20; ++i) runs.push_back(falling(i, 0.1 * i, 3));
  const Picture p = picture(std::span(runs).first(kMostNamed), "loss"), many = picture(runs, "loss");
  std::set<std::size_t> styles;
  for (const Curve& curve : p.curves) styles.insert(curve.style);
  EXPECT_EQ(styles.size(), kMostNamed);
  EXPECT_TRUE(many.ranked);
  EXPECT_EQ(ranking_of(many).front()->style, 0U);
  EXPECT_EQ(ranking_of(many).back()->style, kColours - 1);
  const std::string text = terminal_plot(many, 80, 12, true);
  EXPECT_NE(text.find("T\x1b[0m run19"), std::string::npos);
  const test::TemporaryFolder scratch;
  const std::string svg = scratch.write("a.svg", "");
  gnuplot_plot(p, Image::svg, svg);
  EXPECT_NE(read_text_file(svg, 1 << 20).find("stroke-dasharray"), std::string::npos);
}

TEST(Marks, RestartsSettingsAndPrecisions) {
  const auto head = [](const std::string& lr, const std::string& precision) {
    return R"({"type":"run","precision":")" + precision + R"(","config":{"precision":")" + precision + R"(","lr":)" +
           lr + R"(,"until-step":)" + lr + "}}\n";
  };
  const Log run = run_of(head("1", "bf16") + step(1, 8, "4") + step(2, 16, "3") + head("1", "bf16") + step(3, 24, "3") +
                         head("2", "bf16") + step(4, 32, "2") + head("3", "fp32") + step(5, 40, "2"));
  const Picture p = picture({&run, 1}, "loss");
  const std::vector<Mark>& marks = p.curves.at(0).marks;
  ASSERT_EQ(marks.size(), 3U);
  EXPECT_EQ(marks[0].kind, MarkKind::restart);
  EXPECT_EQ(marks[0].x, 24);
  EXPECT_EQ(marks[1].kind, MarkKind::setting);
  EXPECT_EQ(marks[1].text, "lr 1 to 2");
  EXPECT_EQ(marks[2].kind, MarkKind::phase);
  EXPECT_EQ(marks[2].text, "fp32, lr 2 to 3");
  EXPECT_NE(terminal_plot(p, 60, 8, false).find("\u25b2 run at 32 tokens: lr 1 to 2\n"), std::string::npos);
  const test::TemporaryFolder scratch;
  const std::string svg = scratch.write("a.svg", "");
  gnuplot_plot(p, Image::svg, svg);
  const std::string text = read_text_file(svg, 1 << 20);
  for (const char* part : {"<text>restart</text>", "<text>lr 1 to 2</text>", "<text>fp32, lr 2 to 3</text>"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

std::vector<Side> sides(std::span<const Log> a, std::span<const Log> b) { return {{"A", a}, {"B", b}}; }

TEST(GapPanel, IntervalOfThreePairs) {
  const std::vector<Log> a = side(3, 0), b = side(3, 0.1);  // gaps 0.1, 0.2, 0.3
  const Picture p = comparison_picture(sides(a, b), "loss", 0.5);
  ASSERT_TRUE(p.gap);
  ASSERT_EQ(p.curves.size(), 6U);
  EXPECT_EQ(p.curves[1].style % kColours, p.curves[0].style % kColours);
  EXPECT_NE(p.curves[3].style % kColours, p.curves[0].style % kColours);
  EXPECT_EQ(p.curves[4].style / kColours, p.curves[1].style / kColours);
  EXPECT_EQ(p.gap->band_name, "95 % interval over 3 pairs");
  for (std::size_t i = 0; i < p.gap->curves.at(0).mean.size(); ++i) {
    EXPECT_NEAR(p.gap->curves.at(0).mean[i].y, 0.2, 1e-5);
    EXPECT_NEAR(p.gap->curves[0].high[i].y - p.gap->curves[0].low[i].y, 2 * 0.1 * 4.30265 / std::sqrt(3.0), 1e-4);
  }
  const std::string text = terminal_plot(p, 80, 20, false);
  EXPECT_NE(text.find("gap   . 0   - 95 % interval over 3 pairs   * B - A\n"), std::string::npos);
  const test::TemporaryFolder scratch;
  const std::string svg = scratch.write("a.svg", "");
  gnuplot_plot(p, Image::svg, svg);
  const std::string drawn = read_text_file(svg, 1 << 20);
  EXPECT_NE(drawn.find("width=\"900\" height=\"700\""), std::string::npos);
  EXPECT_NE(drawn.find("<text>95 % interval over 3 pairs</text>"), std::string::npos);
  EXPECT_NE(drawn.find("<text>gate</text>"), std::string::npos);
}

// Pairs of one seed are one observation of the band: the mean gaps of the seeds are 0.1, 0.2 and 0.3.
TEST(GapPanel, IntervalOverSeeds) {
  std::vector<Log> a, b;
  for (int seed = 1; seed <= 3; ++seed) {
    for (const double gap : {0.1 * seed - 0.05, 0.1 * seed + 0.05}) {
      a.push_back(falling(seed, 0));
      b.push_back(falling(seed, gap));
      a.back().key = b.back().key = std::to_string(seed) + "_" + std::to_string(gap);
    }
  }
  const Picture p = comparison_picture(sides(a, b), "loss", std::nullopt);
  EXPECT_EQ(p.gap->band_name, "95 % interval over 3 seeds, of 6 pairs");
  const GapCurve& curve = p.gap->curves.at(0);
  for (std::size_t i = 0; i < curve.mean.size(); ++i)
    EXPECT_NEAR(curve.high[i].y - curve.low[i].y, 2 * 0.1 * 4.30265 / std::sqrt(3.0), 1e-4);
}

// A pair whose losses are not finite for a while has no gap there, whichever the order of the sides.
TEST(GapPanel, NoMeanBesideALossThatIsNotFinite) {
  const auto run = [](int seed, int from, int to, int offset) {
    std::string text = R"({"type":"run","config":{"seed":)" + std::to_string(seed) + "}}\n";
    for (int i = 1; i <= 400; ++i) text += step(i, 100 * i + offset, i >= from && i < to ? "null" : "2");
    return run_of(text, "run" + std::to_string(seed) + ".jsonl");
  };
  const std::vector<Log> a = runs_of(run(1, 0, 0, 0), run(2, 0, 0, 0)),
                         b = runs_of(run(1, 0, 0, 50), run(2, 100, 300, 50));
  for (const Picture& p :
       {comparison_picture(sides(a, b), "loss", std::nullopt), comparison_picture(sides(b, a), "loss", std::nullopt)}) {
    std::size_t finite = 0;
    for (const Point& q : p.gap->curves.at(0).mean) {
      EXPECT_TRUE(!std::isfinite(q.y) || q.x < 11500 || q.x > 28500) << q.x;
      finite += std::isfinite(q.y) ? 1 : 0;
    }
    EXPECT_GT(finite, 100U);
  }
}

// Each side has a colour of its own, in the curves and in the panel of the gaps to the first side.
TEST(GapPanel, SeveralSides) {
  const std::vector<Log> a = side(3, 0), b = side(3, 0.1), c = side(2, 0.3);  // no partner for the third run of A
  const std::vector<Side> all = {{"bf16", a}, {"fp8", b}, {"mx", c}};
  const Picture p = comparison_picture(all, "loss", std::nullopt);
  ASSERT_EQ(p.curves.size(), 8U);
  EXPECT_EQ(p.curves[7].style, 2 + kColours);
  ASSERT_EQ(p.gap->curves.size(), 2U);
  EXPECT_EQ(p.gap->curves[1].name, "mx - bf16");
  EXPECT_EQ(p.gap->curves[1].style, p.curves[6].style % kColours);
  EXPECT_EQ(p.gap->band_name, "95 % interval, or 2 x step noise");
  EXPECT_NE(terminal_plot(p, 80, 20, false).find("gap   . 0   B fp8 - bf16   C mx - bf16\n"), std::string::npos);
}

TEST(GapPanel, SidesBeyondTheColoursHaveOtherDashes) {
  const std::vector<Log> runs = side(1, 0);
  const std::vector<Side> all(kColours + 1, {"side", runs});
  const Picture p = comparison_picture(all, "loss", std::nullopt);
  EXPECT_EQ(p.curves.front().style, 0U);
  EXPECT_EQ(p.curves.back().style, kColours);
}

TEST(GapChart, HasDotsAndIntervalsOfEachSide) {
  const std::vector<Log> a = side(3, 0), b = side(3, 0.1), c = side(2, 0.3);
  const std::vector<Side> all = {{"bf16", a}, {"fp8", b}, {"mx", c}};
  std::vector<PairedComparison> comparisons;
  comparisons.push_back(compare(a, b));
  comparisons.push_back(compare(a, c));
  const GapChart chart = gap_chart(all, comparisons, 0.5);
  EXPECT_EQ(chart.names, (std::vector<std::string>{"fp8", "mx"}));
  ASSERT_EQ(chart.panels.size(), 1U);  // no evaluations
  ASSERT_EQ(chart.panels[0].rows.size(), 2U);
  EXPECT_EQ(chart.panels[0].rows[0].dots.size(), 3U);
  EXPECT_NEAR(*chart.panels[0].rows[0].mean, 0.2, 1e-5);
  EXPECT_NEAR(*chart.panels[0].rows[0].interval, 0.1 * 4.30265 / std::sqrt(3.0), 1e-4);
  EXPECT_EQ(chart.panels[0].rows[1].dots.size(), 2U);
  EXPECT_FALSE(chart.panels[0].rows[1].interval);
  const test::TemporaryFolder scratch;
  for (const Image image : {Image::svg, Image::png}) {
    const std::string path = scratch.write("a", "");
    gnuplot_gaps(chart, image, path);
    EXPECT_GT(read_text_file(path, 1 << 20).size(), 1000U);
  }
}

TEST(GapPanel, StepNoiseOfOnePair) {
  const Log a = falling(1, 0), b = falling(2, 0.25, 300);
  const Picture p = comparison_picture(sides({&a, 1}, {&b, 1}), "loss", std::nullopt);
  ASSERT_TRUE(p.gap);
  EXPECT_EQ(p.gap->band_name, "2 x step noise");
  EXPECT_EQ(p.gap->curves.at(0).mean.back().x, 30000);
  EXPECT_NEAR(p.gap->curves.at(0).mean[100].y, 0.25, 1e-5);
}

}  // namespace
}  // namespace fp8::log
