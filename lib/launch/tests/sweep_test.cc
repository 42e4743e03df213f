// Sweeps: parsing, every message, and the runs with their names and flags.
#include "fp8/launch/sweep.h"

#include "folder.h"

namespace fp8::launch {
namespace {

using Words = std::vector<std::string>;

std::string sweep_error(const std::string& text) {
  return error_of([&] { parse_sweep(text, "s"); });
}

std::string expand_error(const std::string& text) {
  return error_of([&] { runs_of(parse_sweep(text, "s")); });
}

Words names_of(const std::string& text) {
  Words names;
  for (const SweepRun& run : runs_of(parse_sweep(text, "s"))) names.push_back(run.name);
  return names;
}

TEST(Sweep, ReadsSettingsAndSides) {
  const Sweep sweep = parse_sweep(
      "# rates\n"
      "\n"
      "lr = 1e-3, 3e-4   # two\n"
      " betas=0.9,0.95, 0.9,0.99\n"
      "side bf16: --precision bf16\n"
      "side fp8-row:\t--precision fp8 --filter '*.o proj'",
      "s");
  ASSERT_EQ(sweep.settings.size(), 2U);
  EXPECT_EQ(sweep.settings[0].name, "lr");
  EXPECT_EQ(sweep.settings[0].values, (Words{"1e-3", "3e-4"}));
  EXPECT_EQ(sweep.settings[0].line, 3U);
  EXPECT_EQ(sweep.settings[1].name, "betas");
  EXPECT_EQ(sweep.settings[1].values, (Words{"0.9,0.95", "0.9,0.99"}));
  ASSERT_EQ(sweep.sides.size(), 2U);
  EXPECT_EQ(sweep.sides[0].name, "bf16");
  EXPECT_EQ(sweep.sides[0].flags, (Words{"--precision", "bf16"}));
  EXPECT_EQ(sweep.sides[1].name, "fp8-row");
  EXPECT_EQ(sweep.sides[1].flags, (Words{"--precision", "fp8", "--filter", "*.o proj"}));
  EXPECT_EQ(sweep.sides[1].line, 6U);
}

TEST(Sweep, QuotedValues) {
  EXPECT_EQ(parse_sweep("filter = '*.q proj', \"it's\", a', 'b, 'c,'\n", "s").settings[0].values,
            (Words{"*.q proj", "it's", "a, b", "c,"}));
}

TEST(Sweep, InvalidSweepsAreErrors) {
  const std::string forms = "s:1: expected `name = value, value` or `side NAME: FLAGS`, found ";
  EXPECT_EQ(sweep_error(""), "s: has no line with values or a side");
  EXPECT_EQ(sweep_error("# nothing\n\n"), "s: has no line with values or a side");
  EXPECT_EQ(sweep_error("lr 1e-3"), forms + "\"lr 1e-3\"");
  EXPECT_EQ(sweep_error("--lr = 1e-3"), forms + "\"--lr = 1e-3\"");
  EXPECT_EQ(sweep_error("= 1e-3"), forms + "\"= 1e-3\"");
  EXPECT_EQ(sweep_error("learning rate = 1"), forms + "\"learning rate = 1\"");
  EXPECT_EQ(sweep_error("LR = 1"), forms + "\"LR = 1\"");
  EXPECT_EQ(sweep_error("side"), forms + "\"side\"");
  EXPECT_EQ(sweep_error("side = a, b"), forms + "\"side = a, b\"");
  EXPECT_EQ(sweep_error("side bf16 --a"), forms + "\"side bf16 --a\"");
  EXPECT_EQ(sweep_error("lr ="), "s:1: lr: has no values");
  EXPECT_EQ(sweep_error("lr = # 1"), "s:1: lr: has no values");
  EXPECT_EQ(sweep_error("lr = 1 2"), "s:1: expected a comma after \"1\", or quotes around a value with blanks");
  EXPECT_EQ(sweep_error("lr = '1,' 2"), "s:1: expected a comma after \"1,\", or quotes around a value with blanks");
  EXPECT_EQ(sweep_error("lr = 1, 2,"), "s:1: a comma without a value after it");
  EXPECT_EQ(sweep_error("lr = , 2"), "s:1: an empty value");
  EXPECT_EQ(sweep_error("lr = '', 2"), "s:1: an empty value");
  EXPECT_EQ(sweep_error("lr = 1, 2, 1"), "s:1: lr: the value \"1\" is repeated");
  EXPECT_EQ(sweep_error("lr = a/b, a_b"), "s:1: lr: \"a/b\" and \"a_b\" have the same folder name");
  EXPECT_EQ(sweep_error("lr = 1\n\nlr = 2"), "s:3: lr: has its values on line 1 already");
  EXPECT_EQ(sweep_error("out = a, b"), "s:1: out: each run has a folder of its own");
  EXPECT_EQ(sweep_error("side a: --lr 1\nside a: --lr 2"), "s:2: side a: is on line 1 already");
  EXPECT_EQ(sweep_error("side a:"), "s:1: side a: has no flags");
  EXPECT_EQ(sweep_error("side a: # --lr 1"), "s:1: side a: has no flags");
  EXPECT_EQ(sweep_error("side a: bf16"), "s:1: side a: expected a flag, found \"bf16\"");
  for (const std::string name : {"", "a/b", "..", ".a", "a=b", "\xc3\xa4"})
    EXPECT_EQ(sweep_error("side " + name + ": --a"),
              "s:1: side \"" + name + "\": a name has letters, digits and . _ + - only");
  EXPECT_EQ(sweep_error("side a: --lr 1 --out x"), "s:1: side a: --out: each run has a folder of its own");
  EXPECT_EQ(sweep_error("side a: --out=x"), "s:1: side a: --out: each run has a folder of its own");
  EXPECT_EQ(sweep_error("side a: --lr=1\nlr = 1, 2"), "s:1: side a: --lr has its values on line 2");
  EXPECT_EQ(sweep_error("lr = 'a"), "s:1: unterminated quote");
  EXPECT_EQ(sweep_error("lr = a\\"), "s:1: backslash: not an escape character here; put the word in quotes");
  EXPECT_EQ(sweep_error("lr = 1\r\n"), "s:1: a carriage return; lines end in a newline alone");
  EXPECT_EQ(sweep_error("lr = \x1b[31m"), "s:1: a control character");
  EXPECT_EQ(sweep_error("lr = \xff"), "s:1: not UTF-8");
}

TEST(SweepRuns, EveryCombination) {
  const std::vector<SweepRun> runs = runs_of(
      parse_sweep("lr = 1e-3, 3e-4\nseed = 1, 2\nside bf16: --precision bf16\nside fp8: --precision fp8\n", "s"));
  ASSERT_EQ(runs.size(), 8U);
  EXPECT_EQ(runs[0].name, "bf16_lr=1e-3_seed=1");
  EXPECT_EQ(runs[1].name, "fp8_lr=1e-3_seed=1");
  EXPECT_EQ(runs[2].name, "bf16_lr=1e-3_seed=2");
  EXPECT_EQ(runs[7].name, "fp8_lr=3e-4_seed=2");
  EXPECT_EQ(runs[7].side, "fp8");
  EXPECT_EQ(runs[7].flags, (Words{"--precision", "fp8", "--lr", "3e-4", "--seed", "2"}));
  EXPECT_EQ(runs[7].settings, (std::vector<std::pair<std::string, std::string>>{{"lr", "3e-4"}, {"seed", "2"}}));
}

TEST(SweepRuns, WithoutSidesOrSettings) {
  EXPECT_EQ(names_of("lr = 1, 2"), (Words{"lr=1", "lr=2"}));
  EXPECT_EQ(names_of("side a: --x\nside b: --y"), (Words{"a", "b"}));
}

TEST(SweepRuns, NamesAndFlagsOfUnusualValues) {
  const std::vector<SweepRun> runs =
      runs_of(parse_sweep("betas = 0.9,0.95, 0.9,0.99\nmargin = -1, 0\ndata = '../a b.h5'\n", "s"));
  EXPECT_EQ(runs[0].name, "betas=0.9_0.95_margin=-1_data=.._a_b.h5");
  EXPECT_EQ(runs[0].flags, (Words{"--betas", "0.9,0.95", "--margin=-1", "--data", "../a b.h5"}));
}

TEST(SweepRuns, NamesDoNotDependOnOtherValues) {
  EXPECT_EQ(names_of("lr = 1, 2\nseed = 1")[0], names_of("lr = 1\nseed = 1, 2\n")[0]);
}

TEST(SweepRuns, TooManyOrTooLong) {
  std::string values = "0";
  for (int i = 1; i < 101; ++i) values += ", " + std::to_string(i);
  EXPECT_EQ(expand_error("a = " + values + "\nb = " + values), "s: has more than 10000 combinations");
  std::string all;
  for (char c = 'a'; c <= 'z'; ++c) all += std::string(1, c) + " = " + values + "\n";
  EXPECT_EQ(expand_error(all), "s: has more than 10000 combinations");
  EXPECT_EQ(expand_error("a = " + std::string(200, 'x')),
            "s: the name of a folder is longer than 200 bytes: a=" + std::string(78, 'x') + "...");
  EXPECT_EQ(expand_error("a = " + std::string(198, 'x')), "no error");
}

using SweepFile = FolderTest;

TEST_F(SweepFile, ErrorsNameThePath) {
  write_file(at("a.sweep"), "lr = 1\nx\n");
  EXPECT_EQ(error_of([&] { read_sweep(at("a.sweep")); }),
            at("a.sweep:2: expected `name = value, value` or `side NAME: FLAGS`, found \"x\""));
  EXPECT_NE(error_of([&] { read_sweep(at("gone")); }).find(at("gone: No such file")), std::string::npos);
  write_file(at("big"), std::string((std::size_t{1} << 20U) + 1, '#'));
  EXPECT_NE(error_of([&] { read_sweep(at("big")); }), "no error");
}

}  // namespace
}  // namespace fp8::launch
