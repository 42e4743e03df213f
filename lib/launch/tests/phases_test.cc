// Phases: parsing, every message, and the resulting command lines.
#include "fp8/launch/phases.h"

#include "folder.h"

namespace fp8::launch {
namespace {

using Words = std::vector<std::string>;

std::string phases_error(const std::string& text) {
  return error_of([&] { parse_phases(text, "p"); });
}

TEST(Phases, ReadsPhases) {
  const Phases phases = parse_phases(
      "# until  flags\n"
      "\n"
      "200      --precision bf16\n"
      "  1800\t--precision fp8 --recipe tensorwise  # the long one\n"
      "2000",
      "p");
  ASSERT_EQ(phases.list.size(), 3U);
  EXPECT_EQ(phases.list[0], (Phase{200, {"--precision", "bf16"}, 3}));
  EXPECT_EQ(phases.list[1], (Phase{1800, {"--precision", "fp8", "--recipe", "tensorwise"}, 4}));
  EXPECT_EQ(phases.list[2], (Phase{2000, {}, 5}));
  EXPECT_EQ(phases.end(), 2000);
  EXPECT_EQ(phases.name, "p");
}

TEST(Phases, Quotes) {
  const Phases phases = parse_phases("1 --filter='*.q proj' --a \"it's\" '' x#y '#z' \"a\"'b'c", "p");
  EXPECT_EQ(phases.list[0].flags, (Words{"--filter=*.q proj", "--a", "it's", "", "x#y", "#z", "abc"}));
}

TEST(Phases, PhaseOfAStep) {
  const Phases phases = parse_phases("2\n4\n5\n", "p");
  EXPECT_EQ(phases.phase_after(0), 0U);
  EXPECT_EQ(phases.phase_after(1), 0U);
  EXPECT_EQ(phases.phase_after(2), 1U);
  EXPECT_EQ(phases.phase_after(4), 2U);
  EXPECT_EQ(phases.phase_after(5), std::nullopt);
  EXPECT_EQ(phases.phase_after(99), std::nullopt);
}

TEST(Phases, InvalidFilesAreErrors) {
  EXPECT_EQ(phases_error(""), "p: has no phase");
  EXPECT_EQ(phases_error("# nothing\n\n"), "p: has no phase");
  EXPECT_EQ(phases_error("#\nten --x\n"), "p:2: expected the step at which the phase ends, found \"ten\"");
  EXPECT_EQ(phases_error("--precision bf16\n"),
            "p:1: expected the step at which the phase ends, found \"--precision\"");
  for (const char* step : {"0", "-1", "+1", "1.5", "1e3", "99999999999999999999"})
    EXPECT_EQ(phases_error(step),
              std::string("p:1: expected the step at which the phase ends, found \"") + step + "\"");
  EXPECT_EQ(phases_error("2\n2\n"), "p:2: step 2 is not above 2, the end of the previous phase");
  EXPECT_EQ(phases_error("2\n1\n"), "p:2: step 1 is not above 2, the end of the previous phase");
  EXPECT_EQ(phases_error("1 bf16\n"), "p:1: expected a flag after the step, found \"bf16\"");
  EXPECT_EQ(phases_error("1 --a 'b\n2 c'\n"), "p:1: unterminated quote");
  EXPECT_EQ(phases_error("1 --a \"b\n"), "p:1: unterminated quote");
  EXPECT_EQ(phases_error("1 --a \\\n"), "p:1: backslash: not an escape character here; put the word in quotes");
  EXPECT_EQ(phases_error("1 --a\r\n"), "p:1: a carriage return; lines end in a newline alone");
  EXPECT_EQ(phases_error("1 --a \x1b[31m\n"), "p:1: a control character");
  EXPECT_EQ(phases_error(std::string("1 --a\0b\n", 8)), "p:1: a control character");
  EXPECT_EQ(phases_error("1 --a \xff\n"), "p:1: not UTF-8");
  for (const char* name : {"--out", "--until-step", "--steps", "--epochs"}) {
    EXPECT_EQ(phases_error(std::string("1 --a ") + name + " 3"),
              std::string("p:1: ") + name + " is not allowed in a phase");
    EXPECT_EQ(phases_error(std::string("1 ") + name + "=3"),
              std::string("p:1: ") + name + " is not allowed in a phase");
  }
  EXPECT_EQ(phases_error("1 --steps-of-another-kind"), "no error");
}

using PhasesFile = FolderTest;

TEST_F(PhasesFile, ErrorsNameThePath) {
  write_file(at("a.phases"), "1\nx\n");
  EXPECT_EQ(error_of([&] { read_phases(at("a.phases")); }),
            at("a.phases:2: expected the step at which the phase ends, found \"x\""));
  EXPECT_NE(error_of([&] { read_phases(at("gone")); }).find(at("gone: No such file")), std::string::npos);
  EXPECT_NE(error_of([&] { read_phases(at("")); }), "no error");
  write_file(at("big"), std::string((std::size_t{1} << 20U) + 1, '#'));
  EXPECT_NE(error_of([&] { read_phases(at("big")); }), "no error");
}

TEST_F(PhasesFile, StepsOfTheCommand) {
  const auto names = [](const Words& words) { return names_steps(words); };
  EXPECT_FALSE(names({"fp8-step", "m.h5"}));
  EXPECT_TRUE(names({"fp8-step", "--steps", "4"}));
  EXPECT_TRUE(names({"fp8-step", "--steps=4"}));
  EXPECT_TRUE(names({"fp8-step", "--epochs", "4"}));
  write_file(at("with.json"), R"({"steps": 4})");
  write_file(at("without.json"), R"({"steps": null, "lr": 1})");
  write_file(at("epochs.json"), R"({"epochs": 1.5})");
  write_file(at("bad.json"), "{");
  write_file(at("array.json"), "[]");
  EXPECT_TRUE(names({"fp8-step", "--config", at("with.json")}));
  EXPECT_TRUE(names({"fp8-step", "--config=" + at("epochs.json")}));
  EXPECT_FALSE(names({"fp8-step", "--config", at("without.json")}));
  EXPECT_FALSE(names({"fp8-step", "--config", at("bad.json")}));
  EXPECT_FALSE(names({"fp8-step", "--config", at("array.json")}));
  EXPECT_FALSE(names({"fp8-step", "--config", at("gone.json")}));
  EXPECT_FALSE(names({"fp8-step", "--config"}));
}

TEST(CommandLine, Appends) {
  const Phases phases = parse_phases("2 --precision bf16\n4 --precision fp8\n", "p");
  const Words with = {"fp8-step", "--steps", "8"}, without = {"fp8-step"};
  EXPECT_EQ(command_line(with, "r", nullptr, 0), (Words{"fp8-step", "--steps", "8", "--out", "r"}));
  EXPECT_EQ(command_line(with, "r", &phases, 1),
            (Words{"fp8-step", "--steps", "8", "--out", "r", "--until-step", "4", "--precision", "fp8"}));
  EXPECT_EQ(command_line(without, "r", &phases, 0),
            (Words{"fp8-step", "--out", "r", "--until-step", "2", "--steps", "4", "--precision", "bf16"}));
}

TEST(CommandLine, PhasesAfterTheEnd) {
  const Phases phases = parse_phases("2\n\n4\n", "p");
  const auto check = [&](const Words& words) { return error_of([&] { check_phases(phases, words); }); };
  EXPECT_EQ(check({"fp8-step"}), "no error");
  EXPECT_EQ(check({"fp8-step", "--steps", "4"}), "no error");
  EXPECT_EQ(check({"fp8-step", "--steps", "3"}), "p:3: step 4 is after the end of the run, --steps 3");
  EXPECT_EQ(check({"fp8-step", "--steps", "3", "--steps=9"}), "no error");
  EXPECT_EQ(check({"fp8-step", "--steps", "x"}), "no error");
}

TEST(CommandLine, ShellText) {
  EXPECT_EQ(shell_text(Words{"a", "--b=c", "d e", "", "it's", "$x"}), "a --b=c 'd e' '' 'it'\\''s' '$x'");
  EXPECT_EQ(shell_text(Words{}), "");
}

}  // namespace
}  // namespace fp8::launch
