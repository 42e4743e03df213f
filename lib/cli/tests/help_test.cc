// Help and completions agree with the table.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <sstream>

#include "fp8/base/file.h"
#include "helpers.h"

namespace fp8::cli {
namespace {

TEST(Help, ShowsTheExampleFirstAndEveryFlag) {
  const std::string text = help(sample(), 80);
  EXPECT_EQ(
      text.substr(0, 105),
      "Example: fp8-sample in.h5 -o out.h5\n\nfp8-sample: tries flags.\n\nUsage: fp8-sample MODEL [FILE...] [FLAGS]\n");
  EXPECT_NE(text.find("\nArguments:\n  MODEL                       a checkpoint\n"), std::string::npos);
  EXPECT_NE(text.find("\n  -o, --output FILE           where the result goes\n"), std::string::npos);
  EXPECT_NE(text.find("\n      --steps N               how many [100]\n"), std::string::npos);
  EXPECT_NE(text.find("\n      --recipe NAME           how to scale: tensorwise, rowwise [tensorwise]\n"),
            std::string::npos);
  EXPECT_NE(text.find("\n      --[no-]all-gather       gather codes [on]\n"), std::string::npos);
  EXPECT_NE(text.find("\n      --filter GLOB           what to leave out (may be repeated)\n"), std::string::npos);
  for (const Flag& f : sample().flags) EXPECT_NE(text.find(f.name), std::string::npos) << f.name;
  EXPECT_LT(text.find("\nFlags:\n"), text.find("\nOptimizer:\n"));
  EXPECT_LT(text.find("\nOptimizer:\n"), text.find("\nCommon:\n"));
}

TEST(Help, WrapsToTheColumns) {
  Command c = sample();
  c.flags.front().help = "a description that is long enough to need more than one line in any terminal that people use";
  c.flags.push_back({.name = "a-name-that-fills-the-left-column", .help = "here"});
  for (const int columns : {60, 80, 100}) {
    std::istringstream lines(help(c, columns));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
    }
  }
  EXPECT_NE(help(c, 80).find("--a-name-that-fills-the-left-column\n                              here\n"),
            std::string::npos);
}

TEST(Help, CommonFlagsOnce) {
  const Command once = sample();
  const Command twice = with_common(once);
  EXPECT_EQ(once.flags.size(), twice.flags.size());
}

// Runs the script in bash with the given words and returns the completions, in order.
std::string offered(const std::string& words) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write(
      "completion", bash_completion(sample()) + "COMP_WORDS=(" + words +
                        ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_fp8_sample\necho \"${COMPREPLY[*]}\"\n");
  std::string out;
  FILE* pipe = ::popen(("bash " + path).c_str(), "r");
  if (pipe == nullptr) return "no bash";
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  ::pclose(pipe);
  return out;
}

TEST(Completion, OffersFlagsAndChoices) {
  EXPECT_EQ(offered("fp8-sample --st"), "--steps\n");
  EXPECT_EQ(offered("fp8-sample --no"), "--no-all-gather\n");
  EXPECT_EQ(offered("fp8-sample --recipe ''"), "tensorwise rowwise\n");
  EXPECT_EQ(offered("fp8-sample --recipe r"), "rowwise\n");
  EXPECT_EQ(offered("fp8-sample --recipe ="), "tensorwise rowwise\n");
  EXPECT_EQ(offered("fp8-sample --recipe = t"), "tensorwise\n");
  EXPECT_EQ(offered("fp8-sample --steps ''"), "\n");
  EXPECT_EQ(offered("fp8-sample -o /etc/host"), offered("fp8-sample /etc/host"));
  EXPECT_NE(offered("fp8-sample /etc/host"), "\n");
}

}  // namespace
}  // namespace fp8::cli
