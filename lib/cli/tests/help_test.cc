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

// The output of a shell that runs `script`; "no SHELL" if there is none.
std::string printed(const std::string& shell, const std::string& script) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("completion", script);
  FILE* pipe = ::popen(("command -v " + shell + " >/dev/null || { echo no " + shell + "; exit; }; cd " + folder.path() +
                        " && " + shell + " " + path + " 2>&1")
                           .c_str(),
                       "r");
  if (pipe == nullptr) return "no " + shell + "\n";
  std::string out;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
  ::pclose(pipe);
  return out;
}

// A command that mpirun starts, with suggestions.
Command launched() {
  Command c = sample();
  c.launched = true;
  c.flags.push_back(
      {.name = "plot", .kind = FlagKind::text, .metavar = "X", .help = "a [b]: 'c'", .suggestions = {"loss", "lr"}});
  c.positionals[0].suggestions = {"tiny", "demo"};
  return c;
}

// Runs the script in bash with the given words and returns the completions, in order.
std::string offered(const std::string& words, const std::string& function = "_fp8_sample") {
  return printed("bash", completion(launched(), "bash") + "COMP_WORDS=(" + words +
                             ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n" + function + "\necho \"${COMPREPLY[*]}\"\n");
}

// The completions that fish offers for a line, without descriptions.
std::string in_fish(const std::string& line) {
  return printed("fish", completion(launched(), "fish") + "complete -C '" + line + "' | string split -f 1 \\t\n");
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
  EXPECT_EQ(offered("fp8-sample --plot l"), "loss lr\n");
  EXPECT_EQ(offered("fp8-sample tin"), "tiny\n");
}

TEST(Completion, WorksAfterMpirun) {
  const std::string function = "_fp8_launched";
  EXPECT_EQ(offered("mpirun -n 2 fp8-sample --recipe r", function), "rowwise\n");
  EXPECT_EQ(offered("mpirun -n 2 ./bin/fp8-sample m.h5 --st", function), "--steps\n");
  EXPECT_NE((" " + offered("mpirun -n 2 bas", function)).find(" bash"), std::string::npos);
  EXPECT_EQ(completion(sample(), "bash").find("mpirun"), std::string::npos);
}

TEST(Completion, OfFishOffersTheSame) {
  if (in_fish("") == "no fish\n") GTEST_SKIP() << "fish is not installed";
  EXPECT_EQ(in_fish("fp8-sample --recipe "), "rowwise\ntensorwise\n");
  EXPECT_EQ(in_fish("fp8-sample --st"), "--steps\n");
  EXPECT_EQ(in_fish("fp8-sample --no"), "--no-all-gather\n");
  EXPECT_EQ(in_fish("fp8-sample --plot l"), "loss\nlr\n");
  EXPECT_EQ(in_fish("fp8-sample tin"), "tiny\n");
}

// The specifications that the script of zsh gives to _arguments.
TEST(Completion, OfZshNamesTheSame) {
  const std::string script = completion(launched(), "zsh");
  for (const char* spec : {"'-o+[where the result goes]:FILE:_files'", "'--output=[where the result goes]:FILE:_files'",
                           "'--emulate[", "'--no-all-gather[", "'--recipe=[how to scale]:NAME:(tensorwise rowwise)'",
                           "'*--filter=[what to leave out]:GLOB: '", "'--plot=[a \\[b\\]\\: '\\''c'\\'']:X:(loss lr)'",
                           "#compdef fp8-sample mpirun mpiexec\n"})
    EXPECT_NE(script.find(spec), std::string::npos) << spec << "\n" << script;
  const std::string run = R"(
function _arguments { print -rl -- "$@" }
function compdef { print compdef "$@" }
source ./script
_fp8_sample
)";
  const std::string out = printed("zsh", "cat >script <<'END_OF_SCRIPT'\n" + script + "END_OF_SCRIPT\n" + run);
  if (out == "no zsh\n") GTEST_SKIP() << "zsh is not installed";
  EXPECT_NE(out.find("compdef _fp8_sample fp8-sample\ncompdef _fp8_launched mpirun mpiexec\n-s\n-S\n-o+["),
            std::string::npos)
      << out;
  EXPECT_NE(out.find("\n--plot=[a \\[b\\]\\: 'c']:X:(loss lr)\n"), std::string::npos) << out;
}

}  // namespace
}  // namespace fp8::cli
