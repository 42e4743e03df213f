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
      "no column \"speed\" to sort by; available: run, loss, eval_loss, gap, tokens_per_s, steps, precision, recipe, "
      "lr, clip");
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
