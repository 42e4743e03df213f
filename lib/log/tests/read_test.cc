// Reading logs: columns, resumed and torn logs, what is refused.
#include <cmath>

#include "fp8/log/run.h"
#include "run_text.h"

namespace fp8::log {
namespace {

using Steps = std::vector<std::int64_t>;

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
  ASSERT_NE(run.find("loss"), nullptr);
  EXPECT_EQ(run.find("loss")->at(0), 2.5);
  EXPECT_TRUE(std::isnan(run.find("loss")->at(1)));
  EXPECT_EQ(*run.find("lr"), (std::vector<double>{1, 2}));
  EXPECT_EQ(*run.find("skipped"), (std::vector<double>{0, 1}));
  EXPECT_TRUE(std::isnan(run.find("late")->at(0)));
  EXPECT_EQ(run.find("late")->at(1), 4);
  EXPECT_EQ(run.find("note"), nullptr);
  ASSERT_EQ(run.evaluations.size(), 1U);
  EXPECT_EQ(run.evaluations[0].loss, 2.25);
  EXPECT_EQ(run.checkpoints, (Steps{2}));
  EXPECT_EQ(run.planned_steps, 3);
  EXPECT_EQ(run.warnings, 1);
  EXPECT_EQ(run.restarts, 0);
  EXPECT_TRUE(run.finished);
  EXPECT_EQ(run.reason, "done");
}

TEST(ReadRun, KeepsOnlyWhatIsWanted) {
  const test::TemporaryFolder scratch;
  const std::string path = scratch.write("a.jsonl", R"({"type":"step","step":1,"loss":2,"lr":3})"
                                                    "\n");
  const Log run = read_run(path, {.all = false, .metrics = {"lr"}});
  EXPECT_EQ(run.columns.size(), 1U);
  EXPECT_EQ(*run.find("lr"), (std::vector<double>{3}));
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
  EXPECT_EQ(*run.find("b"), (std::vector<double>{1, 2, 4}));
  EXPECT_TRUE(std::isnan(run.find("a")->at(0)));
  EXPECT_EQ(run.find("a")->at(1), 3);
  EXPECT_TRUE(std::isnan(run.find("a")->at(2)));
}

TEST(ReadRun, AStepNotAboveTheLastReplacesAllFromThere) {
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
  EXPECT_EQ(*run.find("loss"), (std::vector<double>{3, 2, 1.5, 0.5}));
  EXPECT_EQ(run.checkpoints, (Steps{2}));
  EXPECT_TRUE(run.evaluations.empty());
  EXPECT_EQ(run.restarts, 1);
  EXPECT_FALSE(run.finished);
  EXPECT_EQ(run.reason, "");
}

TEST(ReadRun, RestartsAreCountedOnce) {
  // Without a run record; with one and nothing repeated; one that did not reach a step.
  EXPECT_EQ(run_of(step(1, 8, "3") + step(2, 16, "2") + step(2, 16, "2")).restarts, 1);
  EXPECT_EQ(run_of(R"({"type":"run"})"
                   "\n" +
                   step(1, 8, "3") +
                   R"({"type":"run"})"
                   "\n" +
                   step(2, 16, "2"))
                .restarts,
            1);
  EXPECT_EQ(run_of(R"({"type":"run"})"
                   "\n" +
                   step(1, 8, "3") +
                   R"({"type":"run"})"
                   "\n")
                .restarts,
            0);
}

TEST(ReadRun, StartingOverReplacesEverything) {
  const Log run = run_of(step(1, 8, "3") + step(2, 16, "2") + step(0, 4, "7"));
  EXPECT_EQ(run.steps, (Steps{0}));
  EXPECT_EQ(*run.find("loss"), (std::vector<double>{7}));
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

TEST(ReadRun, ATornLineIsIgnoredWhereAWriterWasKilled) {
  EXPECT_EQ(run_of(step(1, 8, "3") + R"({"type":"step","st)").steps, (Steps{1}));
  EXPECT_EQ(run_of(step(1, 8, "3") +
                   R"({"type":"st)"
                   "\n"
                   R"({"type":"run"})"
                   "\n" +
                   step(2, 16, "2"))
                .steps,
            (Steps{1, 2}));
  EXPECT_EQ(complaint(step(1, 8, "3") +
                      R"({"type":"st)"
                      "\n" +
                      step(2, 16, "2"))
                .substr(0, 7),
            "line 2 ");
}

TEST(ReadRun, NothingToRead) {
  EXPECT_EQ(complaint(""), "holds no record of a run");
  EXPECT_EQ(complaint(R"({"text":"a document"})"
                      "\n"),
            "holds no record of a run");
  EXPECT_EQ(complaint(R"({"type":"tokens","path":"x"})"
                      "\n"),
            "holds no record of a run");
  EXPECT_TRUE(run_of(R"({"type":"run"})"
                     "\n")
                  .steps.empty());
}

TEST(ReadRun, Refused) {
  EXPECT_EQ(complaint("[1]\n"), "line 1: expected an object, found array");
  EXPECT_EQ(complaint(step(1, 8, "3") + R"({"type":"step"})"
                                        "\n"),
            R"(line 2: "step" is missing)");
  EXPECT_EQ(complaint(R"({"type":"step","step":1.5})"
                      "\n"),
            R"(line 1: "step" is no count)");
  EXPECT_EQ(complaint(R"({"type":"step","step":-1})"
                      "\n"),
            R"(line 1: "step" is no count)");
  EXPECT_EQ(complaint(R"({"type":"step","step":1,"tokens":"8"})"
                      "\n"),
            R"(line 1: "tokens" is no count)");
  EXPECT_EQ(complaint(R"({"type":"step","step":18446744073709551615})"
                      "\n"),
            "line 1: integer out of range");
  EXPECT_EQ(complaint("plain text\n").substr(0, 15), "line 1 column 1");
  std::string many = R"({"type":"step","step":1)";
  for (int i = 0; i < 1001; ++i) many += ",\"m" + std::to_string(i) + "\":1";
  EXPECT_EQ(complaint(many + "}\n"), "line 1: more than 1000 metrics");
}

TEST(ReadRun, Places) {
  const test::TemporaryFolder scratch;
  const std::string file = scratch.write("a/log.jsonl", step(1, 8, "3"));
  const std::string folder = scratch.at("a");
  EXPECT_EQ(read_run(folder, {}).steps, (Steps{1}));
  EXPECT_EQ(read_run(folder, {}).name, "a");
  EXPECT_EQ(read_run(file, {}).name, "a");
  EXPECT_EQ(read_run(file, {}).path, file);
  std::filesystem::create_directory(scratch.at("b"));
  EXPECT_EQ(test::error_of([&] { (void)read_run(scratch.at("b"), {}); }), scratch.at("b") + ": holds no log.jsonl");
  EXPECT_THROW((void)read_run(scratch.at("gone"), {}), Error);
}

TEST(RunName, IsTheLastPart) {
  EXPECT_EQ(run_name("runs/fp8"), "fp8");
  EXPECT_EQ(run_name("runs/fp8//"), "fp8");
  EXPECT_EQ(run_name("runs/fp8.jsonl"), "fp8");
  EXPECT_EQ(run_name("runs/fp8/log.jsonl"), "fp8");
  EXPECT_EQ(run_name("log.jsonl"), "log");
  EXPECT_EQ(run_name("-"), "stdin");
  EXPECT_EQ(run_name("/"), "/");
}

}  // namespace
}  // namespace fp8::log
