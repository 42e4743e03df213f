// Reading logs: columns, resumed runs, incomplete lines, errors.
#include <cmath>
#include <filesystem>
#include <random>
#include <sstream>

#include "fp8/log/run.h"
#include "parse_run.h"
#include "run_text.h"

namespace fp8::log {
namespace {

using Steps = std::vector<std::int64_t>;

std::vector<double> values(const Log& run, const std::string& metric) {
  return {run.find(metric).begin(), run.find(metric).end()};
}

TEST(ReadRun, Columns) {
  const Log run =
      run_of(R"({"type":"run","steps":3,"precision":"fp8"})"
             "\n"
             R"({"type":"step","step":1,"tokens":8,"loss":2.5,"lr":1,"note":"x","skipped":false,"more":[1]})"
             "\n"
             R"({"type":"novel","step":9})"
             "\n"
             R"({"type":"step","step":2,"tokens":16,"loss":null,"lr":2,"skipped":true,"late":4})"
             "\n"
             R"({"type":"eval","step":2,"loss":2.25,"perplexity":9.4,"tokens":100})"
             "\n"
             R"({"type":"checkpoint","step":2,"path":"p","seconds":0.5})"
             "\n"
             R"({"type":"warning","message":"m"})"
             "\n"
             R"({"type":"end","step":2,"reason":"done"})"
             "\n");
  EXPECT_EQ(run.steps, (Steps{1, 2}));
  EXPECT_EQ(run.tokens, (Steps{8, 16}));
  EXPECT_EQ(run.metrics, (std::vector<std::string>{"loss", "lr", "skipped", "late"}));
  ASSERT_EQ(run.find("loss").size(), 2U);
  EXPECT_EQ(run.find("loss")[0], 2.5);
  EXPECT_TRUE(std::isnan(run.find("loss")[1]));
  EXPECT_EQ(values(run, "lr"), (std::vector<double>{1, 2}));
  EXPECT_EQ(values(run, "skipped"), (std::vector<double>{0, 1}));
  EXPECT_TRUE(std::isnan(run.find("late")[0]));
  EXPECT_EQ(run.find("late")[1], 4);
  EXPECT_TRUE(run.find("note").empty());
  ASSERT_EQ(run.evaluations.size(), 1U);
  EXPECT_EQ(run.evaluations.find(2)->second.loss, 2.25);
  EXPECT_EQ(run.checkpoints.find(2)->second.seconds, 0.5);
  EXPECT_EQ(run.planned_steps, 3);
  EXPECT_EQ(run.warnings, 1);
  EXPECT_TRUE(run.restarts.empty());
  EXPECT_TRUE(run.finished);
  EXPECT_EQ(run.reason, "done");
}

TEST(ReadRun, NumbersThatOverflowAreNotMeasured) {
  const Log run = run_of(step(1, 8, "1e308") + step(2, 16, "-1e101") + step(3, 24, "1e99"));
  EXPECT_TRUE(std::isnan(run.find("loss")[0]));
  EXPECT_TRUE(std::isnan(run.find("loss")[1]));
  EXPECT_EQ(run.find("loss")[2], 1e99);
}

TEST(ReadRun, KeepsOnlyWantedFields) {
  const test::TemporaryFolder scratch;
  const std::string path = scratch.write("a.jsonl", R"({"type":"step","step":1,"loss":2,"lr":3})"
                                                    "\n");
  const Log run = read_run(path, {.all = false, .metrics = {"lr"}});
  EXPECT_EQ(run.columns.size(), 1U);
  EXPECT_EQ(values(run, "lr"), (std::vector<double>{3}));
  EXPECT_EQ(run.metrics, (std::vector<std::string>{"loss", "lr"}));
  EXPECT_EQ(run.tokens, (Steps{-1}));
}

TEST(ReadRun, MembersInAnotherOrder) {
  const Log run = run_of(R"({"type":"step","step":1,"a":null,"b":1})"
                         "\n"
                         R"({"type":"step","step":2,"b":2,"a":3})"
                         "\n"
                         R"({"b":4,"step":3,"type":"step"})"
                         "\n");
  EXPECT_EQ(values(run, "b"), (std::vector<double>{1, 2, 4}));
  EXPECT_TRUE(std::isnan(run.find("a")[0]));
  EXPECT_EQ(run.find("a")[1], 3);
  EXPECT_TRUE(std::isnan(run.find("a")[2]));
}

TEST(ReadRun, RepeatedStepReplacesLaterRecords) {
  const Log run = run_of(step(1, 8, "3") + step(2, 16, "2") +
                         R"({"type":"checkpoint","step":2})"
                         "\n" +
                         step(3, 24, "1") +
                         R"({"type":"checkpoint","step":3})"
                         "\n"
                         R"({"type":"eval","step":3,"loss":1})"
                         "\n" +
                         R"({"type":"end","step":3,"reason":"stopped"})"
                         "\n"
                         R"({"type":"run"})"
                         "\n" +
                         step(3, 24, "1.5") + step(4, 32, "0.5"));
  EXPECT_EQ(run.steps, (Steps{1, 2, 3, 4}));
  EXPECT_EQ(values(run, "loss"), (std::vector<double>{3, 2, 1.5, 0.5}));
  EXPECT_EQ(run.checkpoints.size(), 1U);
  EXPECT_EQ(run.checkpoints.count(2), 1U);
  EXPECT_TRUE(run.evaluations.empty());
  EXPECT_EQ(run.restarts, (Steps{3}));
  EXPECT_FALSE(run.finished);
  EXPECT_EQ(run.reason, "");
}

TEST(ReadRun, RestartsAreCountedOnce) {
  // Restarts without a run record; with one but no repeated step; with one that no step follows.
  EXPECT_EQ(run_of(step(1, 8, "3") + step(2, 16, "2") + step(2, 16, "2")).restarts, (Steps{2}));
  EXPECT_EQ(run_of(R"({"type":"run"})"
                   "\n" +
                   step(1, 8, "3") +
                   R"({"type":"run"})"
                   "\n" +
                   step(2, 16, "2"))
                .restarts,
            (Steps{2}));
  EXPECT_EQ(run_of(R"({"type":"run"})"
                   "\n" +
                   step(1, 8, "3") +
                   R"({"type":"run"})"
                   "\n")
                .restarts,
            Steps{});
}

TEST(ReadRun, PlannedPhasesAreNoRestarts) {
  const std::string start = R"({"type":"run"})"
                            "\n",
                    end = R"({"type":"end","reason":"until-step"})"
                          "\n";
  EXPECT_EQ(run_of(start + step(1, 8, "3") + end + start + step(2, 16, "2")).restarts, Steps{});
  EXPECT_EQ(run_of(start + step(1, 8, "3") + step(2, 16, "2") + end + start + step(2, 16, "2")).restarts, (Steps{2}));
}

TEST(ReadRun, FilesOfOtherKindsAreNamed) {
  const std::string not_a_log = ", not the log of a run; give a run's folder or its log.jsonl";
  EXPECT_EQ(complaint("fp8-checkpoint 1 abc\n"), "is a checkpoint" + not_a_log);
  EXPECT_EQ(complaint("fp8-tokens 1 abc\n"), "is a token file" + not_a_log);
  EXPECT_EQ(complaint("{\n  \"a\": 1\n}\n"), "is a JSON document of several lines" + not_a_log);
  EXPECT_EQ(complaint(std::string("\x10\0\0\0\0\0\0\0{\"a\":{}}", 16)), "is a safetensors file" + not_a_log);
  EXPECT_EQ(complaint(std::string("ab\0cd\n", 6)), "is a binary file" + not_a_log);
  EXPECT_EQ(complaint(R"({"type":"operand","linear":"a"})"
                      "\n"),
            "contains no record of a run, but statistics of tensors, which --tensors shows");
}

TEST(ReadRun, OnlyFp8HasARecipe) {
  const auto config = [](const std::string& precision) {
    return run_of(R"({"type":"run","config":{"precision":")" + precision +
                  R"(","recipe":["rowwise","*.o_proj=current"]}})" + "\n" + step(1, 8, "3"));
  };
  EXPECT_EQ(setting_text(config("bf16"), "recipe"), std::nullopt);
  EXPECT_EQ(setting_text(config("fp8"), "recipe"), "rowwise,*.o_proj=current");
}

TEST(ReadRun, RestartAtStepOneReplacesEverything) {
  const Log run = run_of(step(1, 8, "3") + step(2, 16, "2") + step(0, 4, "7"));
  EXPECT_EQ(run.steps, (Steps{0}));
  EXPECT_EQ(values(run, "loss"), (std::vector<double>{7}));
  ASSERT_EQ(run.phases.size(), 1U);
  EXPECT_EQ(run.phases[0].first, 0U);
}

TEST(ReadRun, Phases) {
  const auto with = [](int n, const std::string& rest) {
    return R"({"type":"step","step":)" + std::to_string(n) + "," + rest + "}\n";
  };
  const std::string fp8 = R"("precision":"fp8","recipe":"tensorwise","emulated":true)";
  const Log run = run_of(with(1, R"("precision":"bf16","recipe":null,"emulated":false)") + with(2, fp8) + with(3, fp8));
  ASSERT_EQ(run.phases.size(), 2U);
  EXPECT_EQ(run.phases[0].precision, "bf16");
  EXPECT_EQ(run.phases[0].recipe, "");
  EXPECT_EQ(run.phases[1].first, 1U);
  EXPECT_EQ(run.phases[1].recipe, "tensorwise");
  EXPECT_EQ(run.phases[1].emulated, true);
  const Log from_run = run_of(R"({"type":"run","config":{"precision":"fp8","recipe":"rowwise","steps":9}})"
                              "\n" +
                              step(1, 8, "1"));
  EXPECT_EQ(from_run.phases.at(0).recipe, "rowwise");
  EXPECT_EQ(from_run.planned_steps, 9);
}

TEST(ReadRun, IncompleteLineOfKilledWriterIsIgnored) {
  EXPECT_EQ(run_of(step(1, 8, "3") + R"({"type":"step","st)").steps, (Steps{1}));
  EXPECT_EQ(run_of(step(1, 8, "3") +
                   R"({"type":"st)"
                   "\n"
                   R"({"type":"run"})"
                   "\n" +
                   step(2, 16, "2"))
                .steps,
            (Steps{1, 2}));
  const std::string glued = step(1, 8, "3") + step(2, 16, "2") + R"({"type":"step","st)" + R"({"type":"run","steps":9)";
  EXPECT_EQ(run_of(glued + "}\n" + step(2, 16, "1")).steps, (Steps{1, 2}));
  EXPECT_EQ(run_of(glued + "}\n").planned_steps, 9);
  const std::string spaced =
      step(1, 8, "3") + R"({"type": "step", "st)" + R"({"type": "run", "steps": 9, "model": {"type": "x"}})";
  EXPECT_EQ(run_of(spaced + "\n" + step(1, 8, "1")).planned_steps, 9) << "written by another program";
  EXPECT_EQ(run_of(glued).steps, (Steps{1, 2})) << "two incomplete lines, one of them the last";
  EXPECT_EQ(complaint(glued + "\n" + step(2, 16, "1")).substr(0, 7), "line 3 ");
  EXPECT_EQ(complaint(step(1, 8, "3") +
                      R"({"type":"st)"
                      "\n" +
                      step(2, 16, "2"))
                .substr(0, 7),
            "line 2 ");
}

TEST(ReadRun, LogWithoutRecords) {
  EXPECT_EQ(complaint(""), "contains no record of a run");
  EXPECT_EQ(complaint(R"({"text":"a document"})"
                      "\n"),
            "contains no record of a run");
  EXPECT_EQ(complaint(R"({"type":"tokens","path":"x"})"
                      "\n"),
            "contains no record of a run");
  EXPECT_TRUE(run_of(R"({"type":"run"})"
                     "\n")
                  .steps.empty());
}

TEST(ReadRun, InvalidRecordsAreErrors) {
  EXPECT_EQ(complaint("[1]\n"), "line 1: expected an object, found array");
  EXPECT_EQ(complaint(step(1, 8, "3") + R"({"type":"step"})"
                                        "\n"),
            R"(line 2: "step" is missing)");
  EXPECT_EQ(complaint(R"({"type":"step","step":1.5})"
                      "\n"),
            R"(line 1: "step" is not a count)");
  EXPECT_EQ(complaint(R"({"type":"step","step":-1})"
                      "\n"),
            R"(line 1: "step" is not a count)");
  EXPECT_EQ(complaint(R"({"type":"step","step":1,"tokens":"8"})"
                      "\n"),
            R"(line 1: "tokens" is not a count)");
  EXPECT_EQ(complaint(R"({"type":"step","step":18446744073709551615})"
                      "\n"),
            "line 1: integer out of range");
  EXPECT_EQ(complaint("plain text\n").substr(0, 15), "line 1 column 1");
  std::string many = R"({"type":"step","step":1)";
  for (int i = 0; i < 1001; ++i) many += ",\"m" + std::to_string(i) + "\":1";
  EXPECT_EQ(complaint(many + "}\n"), "line 1: more than 1000 metrics");
}

TEST(ReadRun, FolderFileAndErrors) {
  const test::TemporaryFolder scratch;
  const std::string file = scratch.write("a/log.jsonl", step(1, 8, "3"));
  const std::string folder = scratch.at("a");
  EXPECT_EQ(read_run(folder, {}).steps, (Steps{1}));
  EXPECT_EQ(read_run(folder, {}).name, "a");
  EXPECT_EQ(read_run(file, {}).name, "a");
  EXPECT_EQ(read_run(file, {}).path, file);
  std::filesystem::create_directory(scratch.at("b"));
  EXPECT_EQ(test::error_of([&] { (void)read_run(scratch.at("b"), {}); }), scratch.at("b") + ": contains no log.jsonl");
  EXPECT_THROW((void)read_run(scratch.at("gone"), {}), Error);
}

// A random log of `n` lines: steps with the same members, steps with other members or unusual notation, resumed runs,
// other records.
std::string odd_log(std::uint64_t seed, int n) {
  std::mt19937_64 random(seed);
  std::string text;
  std::int64_t number = 0;
  for (int i = 0; i < n; ++i) {
    const std::uint64_t kind = random() % 40;
    const std::string loss = kind % 7 == 0 ? "null" : std::to_string(random() % 1000) + ".5e-2";
    if (kind == 0) number = std::max<std::int64_t>(0, number - static_cast<std::int64_t>(random() % 20));
    if (kind == 1) text += R"({"type":"eval","step":)" + std::to_string(number) + R"(,"loss":)" + loss + "}\n";
    if (kind == 2) text += R"({"type":"checkpoint","step":)" + std::to_string(number) + "}\n";
    if (kind == 3)
      text += R"({"type":"run","precision":"bf16","steps":99})"
              "\n";
    if (kind == 4) text += "\n  \n";
    if (kind == 5)
      text += R"({"type":"novel"})"
              "\n";
    if (kind == 6)
      text += R"({"type":"st)"
              "\n"
              R"({"type":"run"})"
              "\n";
    number += 1 + static_cast<std::int64_t>(kind == 7);
    text += R"({"type":"step","step":)" + std::to_string(number) + R"(,"tokens":)" + std::to_string(number * 8);
    text += (kind == 8 ? R"(, "loss" : )" : R"(,"loss":)") + loss;
    if (kind == 9) text += R"(,"extra\u0041":1)";
    if (kind == 10) text += R"(,"nested":[1])";
    text += R"(,"precision":)" + std::string(kind > 20 ? R"("fp8")" : kind == 11 ? "null" : R"("bf16")");
    text += R"(,"recipe":)" + std::string(kind > 30 ? R"("rowwise")" : R"("t\u0065nsorwise")");
    text += kind == 12 ? R"(,"emulated":"no")" : kind == 13 ? R"(,"emulated":null)" : R"(,"emulated":true)";
    text += kind == 14 ? "}\r\n" : "}\n";
  }
  return text;
}

// All data of a run as text with exact values.
std::string everything(const Log& run) {
  std::ostringstream out;
  out << std::hexfloat;
  for (std::size_t i = 0; i < run.steps.size(); ++i) out << run.steps[i] << "," << run.tokens[i] << " ";
  for (const Column& c : run.columns) {
    out << "\n" << c.name << ":";
    for (const double v : c.values) out << " " << v;
  }
  for (const std::string& name : run.metrics) out << "\n" << name;
  for (const Phase& p : run.phases) {
    out << "\n" << p.first << p.precision << p.recipe << (p.emulated ? *p.emulated ? "yes" : "no" : "unknown");
  }
  for (const auto& [at, e] : run.evaluations) out << "\neval " << at << " " << e.loss << " " << e.seconds;
  for (const auto& [at, s] : run.checkpoints) out << "\ncheckpoint " << at << " " << s.seconds << s.waited;
  for (const std::int64_t at : run.restarts) out << "\nrestart " << at;
  out << "\n" << run.warnings << run.finished << run.reason << run.planned_steps.value_or(-1);
  return out.str();
}

// The fast path and the parser give the same result: a nested member, which is ignored, forces the parser on every
// line.
TEST(ReadRun, FastPathAndParserAgree) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::string text = odd_log(seed, 300);
    std::string strict;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t newline = text.find('\n', at);
      std::string line = text.substr(at, newline + 1 - at);
      const std::size_t brace = line.rfind('}');
      if (brace != std::string::npos) line.insert(brace, R"(,"opaque":{})");
      strict += line;
      at = newline + 1;
    }
    const Wanted all{.all = true, .metrics = {}};
    EXPECT_EQ(everything(parse_run(text, "x", all)), everything(parse_run(strict, "x", all))) << seed;
  }
}

// The result does not depend on the division into pieces.
TEST(ReadRun, ResultIsIndependentOfPieces) {
  const test::TemporaryFolder scratch;
  const std::string text = odd_log(99, 30000);
  ASSERT_GT(text.size(), std::size_t{3} << 20U);
  const std::string path = scratch.write("x.jsonl", text);
  const Wanted all{.all = true, .metrics = {}};
  const std::string whole = everything(parse_run(text, path, all));
  EXPECT_EQ(everything(read_run(path, all)), whole);
}

TEST(ReadRun, FirstErrorOfALongLogIsReported) {
  const test::TemporaryFolder scratch;
  std::string text;
  for (int i = 1; i <= 40000; ++i) text += step(i, 8 * i, "1");
  const std::string good = text;
  text += "{\"type\":\n" + step(40001, 8 * 40001, "1") + good + "[1]\n";
  const std::string path = scratch.write("x.jsonl", text);
  const std::string message = test::error_of([&] { (void)read_run(path, {}); });
  EXPECT_EQ(message.substr(0, path.size() + 24), path + ": line 40001 column 9: u");
  EXPECT_EQ(test::error_of([&] { (void)parse_run(good + "[1]\n" + good + "{", "x", {}); }),
            "x: line 40001: expected an object, found array");
  EXPECT_EQ(test::error_of([] { (void)read_run("/dev/zero", {}); }),
            "/dev/zero: is a binary file, not the log of a run; give a run's folder or its log.jsonl");
}

TEST(RunName, IsTheLastPathComponent) {
  EXPECT_EQ(run_name("runs/fp8"), "fp8");
  EXPECT_EQ(run_name("runs/fp8//"), "fp8");
  EXPECT_EQ(run_name("runs/fp8.jsonl"), "fp8");
  EXPECT_EQ(run_name("runs/fp8/log.jsonl"), "fp8");
  EXPECT_EQ(run_name("log.jsonl"), std::filesystem::current_path().filename().string());
  EXPECT_EQ(run_name("-"), "stdin");
  EXPECT_EQ(run_name("/"), "/");
}

TEST(RunNames, ArePathsForEqualNames) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(run_names(Names{"a/run", "b/fp8.jsonl"}), (Names{"run", "fp8"}));
  EXPECT_EQ(run_names(Names{"a/run", "b/run", "c/fp8"}), (Names{"a/run", "b/run", "fp8"}));
  EXPECT_EQ(run_names(Names{"run", "run", "run"}), (Names{"run", "run-2", "run-3"}));
}

}  // namespace
}  // namespace fp8::log
