// Curves, plots in the terminal, plots by gnuplot.
#include "fp8/log/picture.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "fp8/base/file.h"
#include "run_text.h"

namespace fp8::log {
namespace {

using namespace plot;

Log ramp(int n) {
  std::string text;
  for (int i = 1; i <= n; ++i) text += step(i, 8 * i, std::to_string(i));
  return run_of(text);
}

Log zigzag(int n) {
  std::string text;
  for (int i = 1; i <= n; ++i) text += step(i, 8 * i, std::to_string(i % 2));
  return run_of(text);
}

std::string picture_complaint(const Log& run, const std::string& metric) {
  return test::error_of([&] { (void)picture({&run, 1}, metric); });
}

TEST(Picture, UnknownMetricListsAvailableOnes) {
  EXPECT_EQ(picture_complaint(run_of(R"({"type":"step","step":1,"loss":2,"lr":1})"
                                     "\n"
                                     R"({"type":"eval","step":1,"loss":2})"
                                     "\n"),
                              "los"),
            R"(no metric "los"; available: loss, lr, eval_loss)");
  EXPECT_EQ(picture_complaint(run_of(R"({"type":"run"})"
                                     "\n"),
                              "loss"),
            R"(no metric "loss"; available: none)");
}

TEST(Picture, FewPointsAreKept) {
  const Log run = ramp(3);
  const Picture p = picture({&run, 1}, "loss");
  EXPECT_TRUE(p.by_tokens);
  ASSERT_EQ(p.curves.size(), 1U);
  ASSERT_EQ(p.curves[0].raw.size(), 3U);
  EXPECT_EQ(p.curves[0].raw[2].x, 24);
  EXPECT_EQ(p.curves[0].raw[2].y, 3);
  EXPECT_TRUE(p.curves[0].smooth.empty());
}

// A field of every third record, such as update_rms: its points are joined. One that is not finite in between is no
// point of a curve, which is interrupted there.
TEST(Picture, PointsOfSomeRecordsAloneAreJoined) {
  std::string text;
  for (int i = 1; i <= 9; ++i)
    text += R"({"type":"step","step":)" + std::to_string(i) + R"(,"loss":)" + (i == 5 ? "null" : "2") +
            (i % 3 == 0 ? R"(,"update_rms_linear":0.1)" : "") + "}\n";
  const Log run = run_of(text);
  const Curve some = picture({&run, 1}, "update_rms_linear").curves.at(0);
  ASSERT_EQ(some.raw.size(), 3U);
  EXPECT_EQ(some.raw[1].x, 6);
  EXPECT_TRUE(some.marks.empty());
  EXPECT_EQ(picture({&run, 1}, "loss").curves.at(0).raw.size(), 9U);
}

TEST(Picture, ManyPointsAreReducedToExtremes) {
  const Log run = zigzag(10000);
  const Curve curve = picture({&run, 1}, "loss").curves.at(0);
  EXPECT_EQ(curve.raw.size(), 1800U);
  EXPECT_EQ(curve.raw[0].y + curve.raw[1].y, 1);
  EXPECT_EQ(curve.smooth.size(), 450U);
  EXPECT_EQ(curve.smooth.front().x, 8);
  EXPECT_EQ(curve.smooth.back().x, 80000);
  EXPECT_NEAR(curve.smooth[200].y, 0.5, 1e-2);
}

TEST(Picture, ASmoothCurveIsNotSmoothed) {
  const Log run = ramp(1000);
  EXPECT_TRUE(picture({&run, 1}, "loss").curves.at(0).smooth.empty());
}

// A spike of one step among noise keeps its height and its width, in short runs and long ones, at steps where the curve
// has a point and between two.
TEST(Picture, ASpikeStaysNarrow) {
  for (const auto& [n, at] : std::vector<std::pair<int, int>>{
           {60, 30}, {120, 60}, {400, 301}, {500, 300}, {500, 301}, {500, 305}, {2000, 1000}}) {
    std::string text;
    for (int i = 1; i <= n; ++i)
      text += step(i, 8 * i, i == at ? "2.8" : std::to_string(2 + 0.05 * std::sin(1.7 * i * i)));
    const Log run = run_of(text);
    const Curve curve = picture({&run, 1}, "loss").curves.at(0);
    ASSERT_FALSE(curve.smooth.empty()) << n;
    int high = 0;
    for (const Point& p : curve.smooth) {
      if (p.x == 8 * at) {
        EXPECT_EQ(p.y, 2.8) << n;
      } else {
        EXPECT_NEAR(p.y, 2, 0.06) << n << " " << p.x;
      }
      high += p.y > 2.1 ? 1 : 0;
    }
    EXPECT_EQ(high, 1) << n << " " << at;
  }
}

// Where the loss falls steeply the moving mean follows it: no step there is a spike.
TEST(Picture, ASteepBeginningHasNoSpikes) {
  const auto loss = [](double i) { return 2 + 3 * std::exp(-i / 6); };
  std::string text;
  for (int i = 1; i <= 600; ++i) text += step(i, 8 * i, std::to_string(loss(i) + 0.05 * std::sin(1.7 * i * i)));
  const Log run = run_of(text);
  const Curve curve = picture({&run, 1}, "loss").curves.at(0);
  EXPECT_EQ(curve.smooth.size(), 450U);
  for (const Point& p : curve.smooth) EXPECT_NEAR(p.y, loss(p.x / 8), 0.06) << p.x;
}

TEST(Picture, NothingIsDrawnBehindTheLastFiniteValue) {
  std::string text;
  for (int i = 1; i <= 1000; ++i)
    text += step(i, 8 * i, i > 600 ? "null" : std::to_string(2 + 0.05 * std::sin(1.7 * i * i)));
  const Log run = run_of(text);
  const Curve curve = picture({&run, 1}, "loss").curves.at(0);
  ASSERT_EQ(curve.marks.size(), 1U);
  EXPECT_EQ(curve.marks[0].text, "not finite");
  EXPECT_EQ(curve.marks[0].x, 8 * 601);
  for (const Point& p : curve.smooth) EXPECT_EQ(std::isfinite(p.y), p.x < 8 * 601) << p.x;
}

TEST(Picture, ManyCurvesAreColouredByASetting) {
  std::vector<Log> runs;
  for (int i = 0; i < 12; ++i) {
    const std::string lr = std::vector<std::string>{"0.01", "0.001", "0.1"}[static_cast<std::size_t>(i % 3)];
    runs.push_back(run_of(R"({"type":"run","config":{"seed":)" + std::to_string(i) + R"(,"lr":)" + lr + "}}\n" +
                              step(1, 8, "3") + step(2, 16, std::to_string(20 - i)),
                          "run" + std::to_string(i) + ".jsonl"));
  }
  const Picture p = picture(runs, "loss");
  ASSERT_EQ(p.groups.size(), 3U);
  EXPECT_EQ(p.groups[0].name, "lr 0.001");
  EXPECT_EQ(p.groups[2].name, "lr 0.1");
  EXPECT_EQ(p.curves[0].style, 1U);
  EXPECT_EQ(ranking_of(p).front()->name, "run11");
  EXPECT_EQ(ranking_of(p).front()->end, 9);
  const std::string text = terminal_plot(p, 60, 8, false);
  EXPECT_NE(text.find("loss   A lr 0.001   B lr 0.01   C lr 0.1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("lowest at the end:\n  1  run11  9\n"), std::string::npos) << text;
}

TEST(Picture, SidesThatDifferByAFilterHaveColoursOfTheirOwn) {
  std::vector<Log> runs;
  for (const auto& [precision, filter] :
       {std::pair<std::string, std::string>("bf16", "null"), {"fp8", "null"}, {"fp8", R"(["*.down_proj","*.o_proj"])"}})
    for (int seed = 1; seed <= 3; ++seed)
      runs.push_back(run_of(R"({"type":"run","config":{"seed":)" + std::to_string(seed) + R"(,"precision":")" +
                                precision + R"(","filter":)" + filter + "}}\n" +
                                R"({"type":"step","step":1,"tokens":8,"loss":2,"precision":")" + precision + "\"}\n",
                            "run" + std::to_string(runs.size()) + ".jsonl"));
  const Picture p = picture(runs, "loss");
  ASSERT_EQ(p.groups.size(), 3U);
  EXPECT_EQ(p.groups[0].name, "bf16");
  EXPECT_EQ(p.groups[1].name, "fp8");
  EXPECT_EQ(p.groups[2].name, "fp8, filter *.down_proj,*.o_proj");
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(p.curves[i].style, i / 3) << i;
}

// The last loss of a run is noise, and a spike there is no end.
TEST(Picture, TheRankingUsesMeansOfTheLastSteps) {
  std::vector<Log> runs;
  for (const int steps : {20, 400})
    for (int k = 0; k < 5; ++k) {
      std::string text;
      for (int i = 1; i <= steps; ++i) {
        const double last = k == 4 ? (steps > 100 ? -1 : -0.2) : 0;
        text += step(i, 8 * i, std::to_string(2 + 0.1 * k + 0.02 * std::sin(1.7 * i * i) + (i == steps ? last : 0)));
      }
      runs.push_back(run_of(text, "run" + std::to_string(runs.size()) + ".jsonl"));
    }
  const Picture p = picture(runs, "loss");
  std::vector<std::string> names;
  for (const Curve* curve : ranking_of(p)) names.push_back(curve->name);
  EXPECT_EQ(names[8] + names[9], "run4run9");
  EXPECT_NEAR(ranking_of(p)[9]->end, 2.4, 0.02);
}

TEST(Picture, CutRuns) {
  Log run = ramp(100);
  cut_run(run, 20, 29);
  EXPECT_EQ(run.steps.size(), 10U);
  EXPECT_EQ(run.steps.front(), 20);
  EXPECT_EQ(run.find("loss").back(), 29);
  EXPECT_EQ(run.phases.size(), 1U);
  cut_run(run, 50, 60);
  EXPECT_TRUE(run.steps.empty());
  EXPECT_TRUE(run.phases.empty());
}

TEST(Picture, Evaluations) {
  const Log run = run_of(R"({"type":"eval","step":0,"loss":3})"
                         "\n" +
                         step(1, 8, "3") + step(2, 16, "2") +
                         R"({"type":"eval","step":2,"loss":2})"
                         "\n");
  const Picture p = picture({&run, 1}, "eval_loss");
  ASSERT_EQ(p.curves.at(0).raw.size(), 2U);
  EXPECT_EQ(p.curves[0].raw[0].x, 0);
  EXPECT_EQ(p.curves[0].raw[1].x, 16);
}

TEST(Picture, StepsWithoutTokenCounts) {
  const std::vector<Log> runs = runs_of(ramp(2), run_of(R"({"type":"step","step":7,"loss":2})"
                                                        "\n"));
  const Picture p = picture(runs, "loss");
  EXPECT_FALSE(p.by_tokens);
  EXPECT_EQ(p.curves.at(0).raw[1].x, 2);
  EXPECT_EQ(p.curves.at(1).raw[0].x, 7);
}

TEST(TerminalPlot, OneCurve) {
  const Log run = ramp(2);
  EXPECT_EQ(terminal_plot(picture({&run, 1}, "loss"), 40, 5, false),
            "loss   ━━ run\n"
            "  2 ┤                        ⣀⣀⣀⠤⠤⠤⠒⠒⠒⠉⠉\n"
            "1.5 ┤           ⣀⣀⣀⡠⠤⠤⠔⠒⠒⠊⠉⠉⠉\n"
            "  1 ┤⣀⣀⠤⠤⠤⠒⠒⠒⠉⠉⠉\n"
            "    └───────────────────────────────────\n"
            "     8                         16 tokens\n");
}

TEST(TerminalPlot, SeveralCurvesWithoutColourAreLetters) {
  const std::vector<Log> runs = runs_of(ramp(2), run_of(step(1, 8, "3"), "other.jsonl"));
  const std::string text = terminal_plot(picture(runs, "loss"), 60, 8, false);
  EXPECT_EQ(text.substr(0, text.find('\n')), "loss   A run   B other");
  EXPECT_NE(text.find("┤B"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(terminal_plot(picture(runs, "loss"), 60, 8, true).find("\x1b[34m"), std::string::npos);
}

TEST(TerminalPlot, LogarithmicAxisAndLimits) {
  const Log run = run_of(step(1, 8, "1") + step(2, 16, "10") + step(3, 24, "100"));
  Picture p = picture({&run, 1}, "loss");
  p.logarithmic = true;
  EXPECT_NE(terminal_plot(p, 40, 9, false).find("\n 10 \u2524"), std::string::npos) << "the middle of 1 and 100";
  p.logarithmic = false;
  p.limits = {0, 20};
  const std::string text = terminal_plot(p, 40, 9, false);
  EXPECT_NE(text.find("20 \u2524"), std::string::npos);
  EXPECT_EQ(text.find("100"), std::string::npos);
}

TEST(TerminalPlot, NoLineIsWiderThanTheTerminal) {
  std::vector<Log> runs;
  for (int i = 0; i < 7; ++i) {
    runs.push_back(run_of(step(1, 8, "3") + step(1, 8, "2"), "a-run-with-a-rather-long-name-" + std::to_string(i)));
    runs.back().name = "a-run-with-a-rather-long-name-" + std::to_string(i);
  }
  const std::string text = terminal_plot(picture(runs, "loss"), 60, 8, false);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; }), 60)
        << line;
  EXPECT_NE(text.find("name-6"), std::string::npos);
}

TEST(TerminalPlot, NoFiniteValueIsAnEmptyPlot) {
  const Log run = run_of(step(1, 8, "1") + step(1, 8, "null"));
  const std::string text = terminal_plot(picture({&run, 1}, "loss"), 40, 5, false);
  EXPECT_NE(text.find("┤\n"), std::string::npos);
}

TEST(Gnuplot, DrawsWithSpecialCharactersInNames) {
  const test::TemporaryFolder scratch;
  std::vector<Log> runs =
      runs_of(zigzag(200), ramp(3), run_of(step(1, 8, "null") + step(2, 16, "2") + step(3, 24, "null")));
  runs[0].name = "it's `touch " + scratch.at("x") + "`\n$(quit)";
  runs[1].name = "'; quit; '\\";
  const Picture p = picture(runs, "loss");
  const std::string svg = scratch.write("a.svg", ""), png = scratch.write("a.png", "");
  gnuplot_plot(p, Image::svg, svg);
  gnuplot_plot(p, Image::png, png);
  const std::string text = read_text_file(svg, 1 << 20);
  EXPECT_NE(text.find("<svg"), std::string::npos);
  EXPECT_NE(text.find("</svg>"), std::string::npos);
  EXPECT_NE(text.find("it's `touch"), std::string::npos);
  EXPECT_NE(text.find("; quit; "), std::string::npos);
  EXPECT_NE(text.find("width=\"900\" height=\"506\""), std::string::npos);
  EXPECT_EQ(read_text_file(png, 1 << 20).substr(1, 3), "PNG");
  EXPECT_FALSE(std::filesystem::exists(scratch.at("x")));
}

// Names of runs and of the metric are drawn literally, except that control characters are escaped.
TEST(Gnuplot, FieldNameIsNotExecuted) {
  const test::TemporaryFolder scratch;
  const Log run = run_of(R"({"type":"step","step":1,"loss'\nset output 'x":2})"
                         "\n");
  const std::string svg = scratch.write("a.svg", "");
  gnuplot_plot(picture({&run, 1}, "loss'\nset output 'x"), Image::svg, svg);
  EXPECT_NE(read_text_file(svg, 1 << 20).find("set output"), std::string::npos);
}

}  // namespace
}  // namespace fp8::log
