// Command lines: every form and every error.
#include <gtest/gtest.h>

#include <stdexcept>

#include "fp8/json/json.h"
#include "helpers.h"

namespace fp8::cli {
namespace {

using Words = std::vector<std::string>;

Command with_interval() {
  Command c = sample();
  c.flags.push_back({.name = "every", .kind = FlagKind::interval, .metavar = "N|TIME", .help = "how often"});
  return c;
}

TEST(Parse, DefaultsWhenNothingIsGiven) {
  const Arguments a = read({"m"});
  EXPECT_EQ(a.integer("steps"), 100);
  EXPECT_EQ(a.real("lr"), 3e-4);
  EXPECT_EQ(a.text("recipe"), "tensorwise");
  EXPECT_EQ(a.text("betas"), "0.9,0.95");
  EXPECT_EQ(a.list("filter"), Words{});
  EXPECT_FALSE(a.flag("emulate"));
  EXPECT_TRUE(a.flag("all-gather"));
  EXPECT_FALSE(a.has("steps"));
  EXPECT_TRUE(a.has_value("steps"));
  EXPECT_FALSE(a.has_value("margin"));
  EXPECT_EQ(a.positional("model"), "m");
  EXPECT_EQ(a.positionals("more"), Words{});
  EXPECT_EQ(error_of([&] { (void)a.integer("margin"); }), "--margin: needed");
  EXPECT_EQ(error_of([&] { (void)a.text("output"); }), "--output: needed");
}

TEST(Parse, EveryForm) {
  const Arguments a = read({"--steps", "5", "--lr=0.5", "m", "-o", "x.h5", "-qv", "--emulate", "--no-all-gather"});
  EXPECT_EQ(a.integer("steps"), 5);
  EXPECT_EQ(a.real("lr"), 0.5);
  EXPECT_EQ(a.text("output"), "x.h5");
  EXPECT_TRUE(a.flag("quiet"));
  EXPECT_TRUE(a.flag("verbose"));
  EXPECT_TRUE(a.flag("emulate"));
  EXPECT_FALSE(a.flag("all-gather"));
  EXPECT_TRUE(a.has("all-gather"));
  EXPECT_EQ(read({"m", "-ox.h5"}).text("output"), "x.h5");
  EXPECT_EQ(read({"m", "-qox.h5"}).text("output"), "x.h5");
  EXPECT_EQ(read({"m", "-qo", "x.h5"}).text("output"), "x.h5");
  EXPECT_EQ(read({"m", "--betas="}).text("betas"), "");
  EXPECT_EQ(read({"m", "--betas=a=b,c"}).text("betas"), "a=b,c");
  EXPECT_EQ(read({"m", "--betas", "1,2"}).text("betas"), "1,2");
}

TEST(Parse, TheLastWins) {
  EXPECT_EQ(read({"m", "--steps", "1", "--steps=2"}).integer("steps"), 2);
  EXPECT_FALSE(read({"m", "--emulate", "--no-emulate"}).flag("emulate"));
  EXPECT_TRUE(read({"m", "--no-emulate", "--emulate"}).flag("emulate"));
  EXPECT_EQ(read({"m", "--filter", "a,b", "--filter=c"}).list("filter"), (Words{"a,b", "c"}));
}

TEST(Parse, ValuesThatBeginWithADash) {
  EXPECT_EQ(read({"m", "--margin", "-3"}).integer("margin"), -3);
  EXPECT_EQ(read({"m", "--margin=-3"}).integer("margin"), -3);
  EXPECT_EQ(read({"m", "--output=-x"}).text("output"), "-x");
  EXPECT_EQ(read({"m", "--output", "-"}).text("output"), "-");
  EXPECT_EQ(read({"m", "--betas", "--steps 1 -x"}).text("betas"), "--steps 1 -x") << "a blank is in no flag";
  EXPECT_EQ(refusal({"--betas", "--steps"}), "--betas: needs a value; if it is '--steps', write --betas=--steps");
  EXPECT_EQ(refusal({"--output", "--steps"}), "--output: needs a value; if it is '--steps', write --output=--steps");
  EXPECT_EQ(refusal({"-o", "-x"}), "-o: needs a value; if it is '-x', write --output=-x");
  EXPECT_EQ(refusal({"--margin", "-x"}), "--margin: needs a value; if it is '-x', write --margin=-x");
  EXPECT_EQ(refusal({"--steps"}), "--steps: needs a value (N)");
  EXPECT_EQ(refusal({"-o"}), "-o: needs a value (FILE)");
}

TEST(Parse, NumbersAreWhole) {
  for (const char* bad : {"1e-3x", "+-3", "nan", "inf", "", " 1", "+1", "0x1", "1e999"}) {
    EXPECT_EQ(refusal({"--lr=" + std::string(bad)}), "--lr: '" + std::string(bad) + "' is not a number");
  }
  for (const char* bad : {"1.0", "1.5", "1e-3", "99999999999999999999", "five", "k", "1K", "1m", "1e3k", "1.0005k",
                          "1e16", "1kk", "1 k", "nank", "0x1k"}) {
    EXPECT_EQ(refusal({"--steps", bad}),
              "--steps: '" + std::string(bad) + "' is not a whole number, as 1000, 1e3 or 1k");
  }
}

TEST(Parse, CountsHaveExponentsAndUnits) {
  const auto steps = [](const std::string& text) { return read({"m", "--steps=" + text}).integer("steps"); };
  EXPECT_EQ(steps("1e3"), 1000);
  EXPECT_EQ(steps("2.5e3"), 2500);
  EXPECT_EQ(steps("10k"), 10'000);
  EXPECT_EQ(steps("1.001k"), 1001);
  EXPECT_EQ(steps("2M"), 2'000'000);
  EXPECT_EQ(steps("1.5G"), 1'500'000'000);
  EXPECT_EQ(read({"m", "--margin=-2k"}).integer("margin"), -2000);
  EXPECT_EQ(refusal({"--steps", "0k"}), "--steps: 0k is below 1");
  EXPECT_EQ(read({"m", "--every", "2k"}, with_interval()).interval("every").count, 2000);
  EXPECT_EQ(read({"m", "--every", "2m"}, with_interval()).interval("every").seconds, 120);
  EXPECT_HOLDS(error_of([] { (void)read({"m", "--every", "2M"}, with_interval()); }), "is neither a whole number nor");
  EXPECT_EQ(json::dump(resolved(sample(), read({"m", "--steps", "1k"})).as_object().at("steps")), "1000");
}

TEST(Parse, RangesAndChoices) {
  EXPECT_EQ(refusal({"--steps", "0"}), "--steps: 0 is below 1");
  EXPECT_EQ(refusal({"--steps", "-1"}), "--steps: -1 is below 1");
  EXPECT_EQ(refusal({"--lr", "1.5"}), "--lr: 1.5 is above 1");
  EXPECT_EQ(refusal({"--lr", "1"}), "no error");
  EXPECT_EQ(refusal({"--recipe", "mx"}), "--recipe: 'mx' is not one of tensorwise, rowwise");
  EXPECT_EQ(refusal({"--output="}), "--output: empty path");
  EXPECT_EQ(refusal({"--steps", "0", "--steps", "1"}), "--steps: 0 is below 1");  // also checked if a later one wins
}

TEST(Parse, UnknownFlags) {
  EXPECT_EQ(refusal({"--nope"}), "--nope: unknown flag");
  EXPECT_EQ(refusal({"--nope=3"}), "--nope: unknown flag");
  EXPECT_EQ(refusal({"--step", "3"}), "--step: unknown flag (did you mean --steps?)");
  EXPECT_EQ(refusal({"--recpie=x"}), "--recpie: unknown flag (did you mean --recipe?)");
  EXPECT_EQ(refusal({"--no-al-gather"}), "--no-al-gather: unknown flag (did you mean --no-all-gather?)");
  EXPECT_EQ(refusal({"--no-steps"}).substr(0, 24), "--no-steps: unknown flag");
  EXPECT_EQ(refusal({"-x"}), "-x: unknown flag");
  EXPECT_EQ(refusal({"-qx"}), "-x: unknown flag");
  EXPECT_EQ(refusal({"-1"}), "-1: unknown flag");
  EXPECT_EQ(refusal({"---"}), "---: unknown flag");
  EXPECT_EQ(refusal({"--=3"}), "--: unknown flag");
  EXPECT_EQ(refusal({"--emulate=yes"}), "--emulate: takes no value");
  EXPECT_EQ(refusal({"--" + std::string(100'000, 'x')}).size(), 100'016U);
}

TEST(Parse, Positionals) {
  EXPECT_EQ(error_of([] { read({}); }), "MODEL: needed (see --help)");
  EXPECT_EQ(read({"a", "b", "--emulate", "c"}).positionals("more"), (Words{"b", "c"}));
  EXPECT_EQ(read({"-", "-"}).positionals("more"), Words{"-"});
  EXPECT_EQ(read({"--", "--steps", "-x"}).positional("model"), "--steps");
  EXPECT_EQ(read({"--", "a", "--", "b"}).positionals("more"), (Words{"--", "b"}));
  Command one = sample();
  one.positionals.pop_back();
  EXPECT_EQ(error_of([&] { read({"a", "b"}, one); }), "'b': unexpected argument");
  one.positionals.front().required = false;
  EXPECT_EQ(read({}, one).positionals("model"), Words{});
  EXPECT_EQ(error_of([&] { (void)read({}, one).positional("model"); }), "MODEL: needed");
  EXPECT_TRUE(read({"--help"}).flag("help"));  // positionals are then optional
}

TEST(Parse, CommandAfterTheDashes) {
  Command c = sample();
  c.takes_command = true;
  const Arguments a = read({"m", "-q", "--", "mpirun", "-n", "2", "--", "x"}, c);
  EXPECT_EQ(a.rest(), (Words{"mpirun", "-n", "2", "--", "x"}));
  EXPECT_EQ(a.positionals("more"), Words{});
  EXPECT_EQ(read({"m"}, c).rest(), Words{});
}

TEST(Parse, LongValuesAreComplete) {
  const std::string text(200'000, 'x');
  EXPECT_EQ(read({"m", "--betas", text}).text("betas"), text);
  EXPECT_EQ(read({text}).positional("model"), text);
}

TEST(Arguments, MistakesOfTheProgramAreLogicErrors) {
  const Arguments a = read({"m"});
  EXPECT_THROW((void)a.flag("nothing"), std::logic_error);
  EXPECT_THROW((void)a.flag("steps"), std::logic_error);
  EXPECT_THROW((void)a.text("steps"), std::logic_error);
  EXPECT_THROW((void)a.integer("lr"), std::logic_error);
  EXPECT_THROW((void)a.list("betas"), std::logic_error);
  EXPECT_THROW((void)a.positionals("nothing"), std::logic_error);
  EXPECT_EQ(a.real("steps"), 100.0);
}

}  // namespace
}  // namespace fp8::cli
