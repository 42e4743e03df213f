// Overviews of many runs: columns, order, JSON.
#include "fp8/log/overview.h"

#include "run_text.h"

namespace fp8::log {
namespace {

Log run(const std::string& lr, const std::string& loss) {
  return run_of(R"({"type":"run","config":{"lr":)" + lr + R"(,"clip":1.0}})" + "\n" + step(1, 8, loss));
}

std::string order(const Overview& all) {
  std::string names;
  for (const OverviewRow& row : all.rows) names += row.summary.name;
  return names;
}

Overview three(std::span<const Log> baseline = {}) {
  OverviewBuilder builder;
  builder.add(run("1e-3", "2"), "a", baseline);
  builder.add(run("2e-4", "3"), "b", baseline);
  builder.add(run_of(step(1, 8, "null") + step(2, 16, "1")), "c", baseline);
  return builder.finish();
}

TEST(Overview, SettingsThatDiffer) {
  const Overview all = three();
  EXPECT_EQ(all.settings, (std::vector<std::string>{"lr", "clip"}));  // unknown in the last run
  EXPECT_EQ(all.rows[0].settings, (std::vector<std::string>{"0.001", "1.0"}));
  EXPECT_EQ(all.rows[2].settings, (std::vector<std::string>{"", ""}));
  const json::Object r = record(all, all.rows[1]).as_object();
  EXPECT_EQ(r.at("settings").as_object().at("lr").as_double(), 2e-4);
  EXPECT_EQ(r.at("settings").as_object().at("clip").as_double(), 1.0) << "all settings";
  EXPECT_EQ(r.at("differing").as_array().size(), 2U);
  EXPECT_FALSE(r.contains("gap"));
}

TEST(Overview, SortsByNumbersAndMissingValuesLast) {
  Overview all = three();
  for (const auto& [name, expected] : std::vector<std::pair<std::string, std::string>>{
           {"lr", "bac"}, {"-lr", "abc"}, {"loss", "cab"}, {"-loss", "bac"}, {"run", "abc"}, {"-run", "cba"}}) {
    sort_rows(all, name);
    EXPECT_EQ(order(all), expected) << name;
  }
  EXPECT_EQ(
      test::error_of([&] { sort_rows(all, "speed"); }),
      "no column \"speed\" to sort by; available: run, loss, eval, eval_loss, best_eval, gap, tokens_per_s, steps, "
      "precision, recipe, lr, clip");
}

// A rate with the lowest training loss and another one with the lowest evaluation loss.
TEST(Overview, SortsByTheEvaluation) {
  OverviewBuilder builder;
  const auto evaluated = [](const std::string& lr, const std::string& loss, const std::string& first,
                            const std::string& last) {
    const auto eval = [](int at, const std::string& value) {
      return R"({"type":"eval","step":)" + std::to_string(at) + R"(,"tokens":7,"loss":)" + value + "}\n";
    };
    return run_of(R"({"type":"run","config":{"lr":)" + lr + "}}\n" + step(1, 8, loss) + eval(1, first) +
                  step(2, 16, loss) + eval(2, last));
  };
  builder.add(evaluated("3e-3", "1.0", "2.5", "2.6"), "a", {});
  builder.add(evaluated("1e-3", "1.2", "2.7", "2.4"), "b", {});
  Overview all = builder.finish();
  EXPECT_TRUE(any_evaluated(all));
  sort_rows(all, "eval");
  EXPECT_EQ(order(all), "ba");
  EXPECT_EQ(all.rows[1].summary.best_eval_loss, 2.5);
  EXPECT_EQ(all.rows[1].summary.best_eval_step, 1);
  EXPECT_FALSE(any_evaluated(three()));
}

// The settings of phases, by the step from which they apply.
TEST(Overview, ChangesOfARun) {
  OverviewBuilder builder;
  const std::string end = R"({"type":"end","reason":"until-step"})"
                          "\n";
  builder.add(run_of(R"({"type":"run","config":{"precision":"bf16","recipe":"tensorwise","lr":1}})"
                     "\n" +
                     step(1, 8, "3") + end +
                     R"({"type":"run","config":{"precision":"fp8","recipe":"rowwise","lr":2}})"
                     "\n" +
                     step(2, 16, "2")),
              "a", {});
  builder.add(run("1", "3"), "b", {});
  const Overview all = builder.finish();
  ASSERT_EQ(all.rows[0].changes.size(), 1U);
  EXPECT_EQ(all.rows[0].changes[0].step, 2);
  const auto lr = std::ranges::find(all.settings, "lr") - all.settings.begin();
  EXPECT_EQ(all.rows[0].settings.at(static_cast<std::size_t>(lr)), "1");
  EXPECT_EQ(all.rows[0].changes[0].settings.at(static_cast<std::size_t>(lr)), "2");
  EXPECT_EQ(all.rows[0].summary.restarts, 0) << "a planned phase";
}

TEST(Overview, ModelsByName) {
  const auto of = [](const std::string& path, const std::string& digest) {
    return run_of(R"({"type":"run","config":{"lr":1},"model_path":")" + path + R"(","settings":{"model":")" + digest +
                  "\"}}\n" + step(1, 8, "3"));
  };
  const auto models = [](std::vector<Log> runs) {
    OverviewBuilder builder;
    for (const Log& r : runs) builder.add(r, "r", {});
    const Overview all = builder.finish();
    std::string names;
    for (const OverviewRow& row : all.rows) names += row.settings.empty() ? "-" : row.settings.front() + ";";
    return names;
  };
  EXPECT_EQ(models(runs_of(of("m/a.h5", "0123456789"), of("m/b.h5", "9876543210"))), "a.h5;b.h5;");
  EXPECT_EQ(models(runs_of(of("m/a.h5", "0123456789"), of("n/a.h5", "9876543210"))),
            "a.h5 (01234567);a.h5 (98765432);");
  EXPECT_EQ(models(runs_of(of("m/a.h5", "0123456789"), of("n/b.h5", "0123456789"))), "--") << "the same model";
}

TEST(Overview, GapToTheBaseline) {
  const Log baseline = run("1e-3", "2");
  const Overview all = three({&baseline, 1});
  EXPECT_EQ(all.rows[0].gap, 0);
  EXPECT_EQ(all.rows[1].gap, 1);
  EXPECT_EQ(all.rows[2].gap, std::nullopt);
  EXPECT_EQ(record(all, all.rows[1]).as_object().at("baseline").as_string(), baseline.path);
}

// A run that cannot be compared has no gap and a reason; the others keep theirs.
TEST(Overview, RunsWithoutAGap) {
  const Log baseline = run("1e-3", "2");
  OverviewBuilder builder;
  builder.add(run("1e-3", "3"), "a", {&baseline, 1});
  builder.add(run("1e-3", "null"), "b", {&baseline, 1});
  builder.add(run_of(R"({"type":"run"})"
                     "\n"),
              "c", {&baseline, 1});
  const Overview all = builder.finish();
  ASSERT_EQ(all.rows.size(), 3U);
  EXPECT_EQ(all.rows[0].gap, 1);
  EXPECT_EQ(all.rows[0].without_gap, "");
  EXPECT_EQ(all.rows[1].gap, std::nullopt);
  EXPECT_EQ(all.rows[1].without_gap, all.rows[1].summary.path + ": contains no finite loss to compare");
  EXPECT_EQ(all.rows[2].without_gap, all.rows[2].summary.path + ": contains no steps to compare");
  const Log bad = run("1e-3", "null");
  EXPECT_EQ(test::error_of([&] {
              OverviewBuilder().add(baseline, "a", {&bad, 1});
            }),
            bad.path + ": contains no finite loss to compare");
}

}  // namespace
}  // namespace fp8::log
