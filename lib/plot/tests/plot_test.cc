// The name of a plot, and what is drawn of small pictures.
#include "fp8/plot/plot.h"

#include "fp8/base/file.h"
#include "fp8_test.h"

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

}  // namespace
}  // namespace fp8::plot
