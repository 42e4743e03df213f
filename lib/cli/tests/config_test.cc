// Config files: same names as the flags, flags win, written files read back.
#include <gtest/gtest.h>

#include "fp8/json/json.h"
#include "helpers.h"

namespace fp8::cli {
namespace {

Arguments with_config(const std::string& text, const std::vector<std::string>& words = {"m"}) {
  Arguments a = read(words);
  parse_config(sample(), json::parse(text, "c.json"), a, "c.json");
  return a;
}

std::string config_refusal(const std::string& text) {
  return error_of([&] { with_config(text); });
}

TEST(Config, SetsFlagsThatAreNotGiven) {
  const Arguments a = with_config(
      R"({"steps": 7, "lr": 1, "recipe": "rowwise", "filter": ["a", "b"], "emulate": true, "all-gather": false, "margin": null})",
      {"m", "--steps", "9"});
  EXPECT_EQ(a.integer("steps"), 9);
  EXPECT_EQ(a.real("lr"), 1.0);
  EXPECT_EQ(a.text("recipe"), "rowwise");
  EXPECT_EQ(a.list("filter"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(a.flag("emulate"));
  EXPECT_FALSE(a.flag("all-gather"));
  EXPECT_FALSE(a.has_value("margin"));
  EXPECT_TRUE(a.has("recipe"));
}

TEST(Config, ANulCharacterIsRefused) {
  EXPECT_EQ(config_refusal(R"({"filter": ["a\u0000b"]})"), "c.json: \"filter\": contains a NUL character");
}

TEST(Config, FlagsWinOverListsAndSwitches) {
  const Arguments a = with_config(R"({"filter": ["a"], "emulate": true})", {"m", "--filter", "x", "--no-emulate"});
  EXPECT_EQ(a.list("filter"), std::vector<std::string>{"x"});
  EXPECT_FALSE(a.flag("emulate"));
}

TEST(Config, ADefaultIsNotGiven) {
  const Arguments a =
      with_config(R"({"steps": 100, "lr": 0.0003, "emulate": false, "filter": [], "recipe": "tensorwise"})");
  for (const char* name : {"steps", "lr", "emulate", "filter", "recipe"}) EXPECT_FALSE(a.has(name)) << name;
}

TEST(Config, RefusesWithTheName) {
  EXPECT_EQ(config_refusal("[]"), "c.json: expected an object of flags, found array");
  EXPECT_EQ(config_refusal(R"({"stesp": 1})"), "c.json: \"stesp\": unknown name (did you mean steps?)");
  EXPECT_EQ(config_refusal(R"({"unlike": 1})"), "c.json: \"unlike\": unknown name");
  EXPECT_EQ(config_refusal(R"({"help": true})"), "c.json: \"help\": can be set only on the command line");
  EXPECT_EQ(config_refusal(R"({"steps": "7"})"), "c.json: \"steps\": expected an integer, found string");
  EXPECT_EQ(config_refusal(R"({"steps": 7.0})"), "c.json: \"steps\": expected an integer, found number");
  EXPECT_EQ(config_refusal(R"({"steps": 0})"), "c.json: \"steps\": 0 is below 1");
  EXPECT_EQ(config_refusal(R"({"lr": 2.5})"), "c.json: \"lr\": 2.5 is above 1");
  EXPECT_EQ(config_refusal(R"({"recipe": "mx"})"), "c.json: \"recipe\": 'mx' is not one of tensorwise, rowwise");
  EXPECT_EQ(config_refusal(R"({"filter": 1})"), "c.json: \"filter\": expected an array, found integer");
  EXPECT_EQ(config_refusal(R"({"emulate": 1})"), "c.json: \"emulate\": expected a boolean, found integer");
  // also checked if a flag overrides the value
  EXPECT_NE(error_of([] { with_config(R"({"steps": 0})", {"m", "--steps", "3"}); }), "no error");
}

TEST(Config, ResolvedReadsBackEqual) {
  const std::vector<std::vector<std::string>> lines = {
      {"m"},
      {"m", "--steps", "3", "--lr", "0.1", "--margin=-2", "--emulate", "--no-all-gather", "--filter", "a", "--filter",
       "b"},
      {"m", "--betas=", "--recipe", "rowwise", "--lr", "1e-7"},
  };
  for (const auto& words : lines) {
    const Arguments a = read(words);
    const json::Value written = resolved(sample(), a);
    Arguments b = read({"m"});
    parse_config(sample(), json::parse(json::dump(written, 2), "c.json"), b);
    EXPECT_EQ(resolved(sample(), b), written);
    EXPECT_EQ(b.real("lr"), a.real("lr"));
    EXPECT_EQ(b.list("filter"), a.list("filter"));
    EXPECT_EQ(b.text("betas"), a.text("betas"));
    EXPECT_EQ(b.has_value("margin"), a.has_value("margin"));
  }
  EXPECT_EQ(json::dump(resolved(sample(), read({"m"}))),
            R"({"steps":100,"lr":3e-04,"margin":null,"recipe":"tensorwise","filter":[],"betas":"0.9,0.95",)"
            R"("emulate":false,"all-gather":true})");
}

TEST(Config, AToggleThatIsNeitherOnNorOff) {
  const Command command{.name = "fp8-sample", .flags = {{.name = "scales", .default_text = "auto", .help = "round"}}};
  for (const auto& [word, written] :
       std::vector<std::pair<std::string, std::string>>{{"", "null"}, {"--scales", "true"}, {"--no-scales", "false"}}) {
    const Arguments a = read(word.empty() ? std::vector<std::string>{} : std::vector<std::string>{word}, command);
    EXPECT_EQ(json::dump(resolved(command, a)), "{\"scales\":" + written + "}");
    Arguments b = read({}, command);
    parse_config(command, resolved(command, a), b);
    EXPECT_EQ(b.has("scales"), !word.empty());
    EXPECT_EQ(b.flag("scales"), word == "--scales");
  }
  EXPECT_NE(help(command, 80).find("--[no-]scales"), std::string::npos);
}

}  // namespace
}  // namespace fp8::cli
