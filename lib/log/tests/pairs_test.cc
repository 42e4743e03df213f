// Comparison of several pairs of runs: pairing, interval, verdict, settings.
#include <array>
#include <cmath>

#include "fp8/log/compare.h"
#include "run_text.h"
#include "statistics.h"

namespace fp8::log {
namespace {

// A run of one step with a seed, a model and a loss.
Log seeded(int seed, const std::string& loss, const std::string& model = "m", const std::string& more = "") {
  return run_of(R"({"type":"run","config":{"seed":)" + std::to_string(seed) + more + R"(},"settings":{"model":")" +
                    model + "\"}}\n" + step(1, 8, loss),
                "seed" + std::to_string(seed) + ".jsonl");
}

// Runs that begin with the given settings, as members of the config.
Log with_config(const std::string& config, const std::string& more = "") {
  return run_of(R"({"type":"run","config":{)" + config + "}" + more + "}\n" + step(1, 8, "1"));
}

std::string names(const std::vector<Difference>& differences) {
  std::string text;
  for (const Difference& d : differences) text += d.name + (d.checked ? "! " : " ");
  return text;
}

PairedComparison gaps(const std::vector<std::string>& losses) {
  std::vector<Log> a, b;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    a.push_back(seeded(static_cast<int>(i), "1"));
    b.push_back(seeded(static_cast<int>(losses.size() - 1 - i), losses[losses.size() - 1 - i]));
  }
  return compare(a, b);
}

// Values of the table in Student's t distribution, any textbook.
TEST(Student, Quantiles) {
  EXPECT_NEAR(student_t95(1), 12.7062, 1e-4);
  EXPECT_NEAR(student_t95(2), 4.30265, 1e-5);
  EXPECT_NEAR(student_t95(3), 3.18245, 1e-5);
  EXPECT_NEAR(student_t95(4), 2.77645, 1e-5);
  EXPECT_NEAR(student_t95(11), 2.20099, 1e-5);
  EXPECT_NEAR(student_t95(30), 2.04227, 1e-5);
  EXPECT_NEAR(student_t95(1000), 1.96234, 1e-5);
}

TEST(Pairs, IntervalOfTheMean) {
  EXPECT_EQ(mean_interval(std::array{1.0}), std::nullopt);
  EXPECT_EQ(mean_interval(std::array{1.0, 1.0, 1.0}), 0);
  // Standard deviation 1, so the interval is t / sqrt(3).
  EXPECT_NEAR(*mean_interval(std::array{1.0, 2.0, 3.0}), 4.30265 / std::sqrt(3.0), 1e-5);
}

TEST(Pairs, SeedsArePairedInAnyOrder) {
  const PairedComparison c = gaps({"1.25", "1.5", "1.75"});
  ASSERT_EQ(c.pairs.size(), 3U);
  EXPECT_EQ(c.seeds, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(c.pairs[0].gap, 0.25);
  EXPECT_EQ(c.pairs[2].gap, 0.75);
  EXPECT_EQ(c.gap, 0.5);
  EXPECT_NEAR(*c.interval, 0.25 * 4.30265 / std::sqrt(3.0), 1e-5);
  EXPECT_TRUE(c.differences.empty());
}

TEST(Pairs, SwappedSidesNegateTheGapExactly) {
  std::vector<Log> a, b;
  for (const int seed : {10, 2, 1, 3}) a.push_back(seeded(seed, "1"));
  for (const auto& [seed, loss] :
       std::vector<std::pair<int, std::string>>{{1, "1.1"}, {2, "1.7"}, {3, "0.3"}, {10, "1.15"}}) {
    b.push_back(seeded(seed, loss));
  }
  const PairedComparison there = compare(a, b), back = compare(b, a);
  EXPECT_EQ(*there.gap, -*back.gap);
  EXPECT_EQ(there.interval, back.interval);
  EXPECT_EQ(there.seeds, (std::vector<std::string>{"1", "2", "3", "10"}));
  EXPECT_EQ(back.seeds, there.seeds);
}

TEST(Pairs, VerdictOfThreePairs) {
  const PairedComparison c = gaps({"1.25", "1.5", "1.75"});  // 0.5 +- 0.621
  EXPECT_EQ(verdict(c, 1.125), Verdict::met);
  EXPECT_EQ(verdict(c, 1.0), Verdict::cannot_tell);
  EXPECT_EQ(verdict(c, 0.0), Verdict::cannot_tell);
  const PairedComparison far = gaps({"2", "2.0625", "2.125"});  // 1.0625 +- 0.155
  EXPECT_EQ(verdict(far, 0.875), Verdict::not_met);
  EXPECT_EQ(verdict(far, 1), Verdict::cannot_tell);
  EXPECT_EQ(verdict(far, 1.25), Verdict::met);
  EXPECT_EQ(verdict(gaps({"0", "-0.0625", "-0.125"}), 0.875), Verdict::not_met);
}

// A seed for each loss, with three pairs: the pair of model "m" has this loss on side B, the others have a gap of 0.5.
PairedComparison threefold(const std::vector<std::string>& losses) {
  std::vector<Log> a, b;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    for (const char* model : {"m", "n", "o"}) {
      a.push_back(seeded(static_cast<int>(i), "1", model));
      b.push_back(seeded(static_cast<int>(i), *model == 'm' ? losses[i] : "1.5", model));
    }
  }
  return compare(a, b);
}

// Pairs of one seed are one observation: the mean gaps of the seeds are 0.25, 0.5 and 0.75.
TEST(Pairs, PairsOfOneSeedCountOnce) {
  const PairedComparison c = threefold({"0.75", "1.5", "2.25"});
  ASSERT_EQ(c.pairs.size(), 9U);
  EXPECT_EQ(c.seed_count, 3U);
  EXPECT_EQ(c.gap, 0.5);
  EXPECT_NEAR(*c.interval, 0.25 * 4.30265 / std::sqrt(3.0), 1e-5);  // 0.621
  EXPECT_EQ(pairs_to_tell(c, c.gap, c.interval), 1U);               // 0.25 x 3.18245 / 2 < 0.5
  EXPECT_EQ(verdict(c, 1.0), Verdict::cannot_tell);
  EXPECT_EQ(pairs_to_gate(c, 1.0), 1U);
  const json::Value r = record(c, std::nullopt);
  EXPECT_EQ(r.as_object().at("seeds").as_int(), 3);
  EXPECT_EQ(r.as_object().at("pairs").as_array().size(), 9U);
  EXPECT_EQ(interval_basis(3, 9), "3 seeds, of 9 pairs");
  EXPECT_EQ(interval_basis(3, 3), "3 pairs");
  for (const PairedComparison& few : {threefold({"0.75"}), threefold({"0.75", "1.5"})}) {
    EXPECT_GE(few.pairs.size(), kEnoughPairs);
    EXPECT_EQ(few.interval, std::nullopt);
  }
}

// Each seed has the same weight, whatever its number of pairs.
TEST(Pairs, SeedsHaveEqualWeights) {
  const std::vector<Log> a = runs_of(seeded(1, "1"), seeded(1, "1", "n"), seeded(2, "1"));
  const std::vector<Log> b = runs_of(seeded(1, "1.25"), seeded(1, "1.75", "n"), seeded(2, "2"));
  EXPECT_EQ(compare(a, b).gap, 0.75);
}

TEST(Pairs, OneOrTwoPairsDecideByTheGapAlone) {
  for (const PairedComparison& c : {gaps({"1.5"}), gaps({"1.25", "1.75"})}) {
    EXPECT_EQ(c.gap, 0.5);
    EXPECT_EQ(c.interval, std::nullopt);
    EXPECT_EQ(verdict(c, 0.5), Verdict::met);
    EXPECT_EQ(verdict(c, 0.4375), Verdict::not_met);
    EXPECT_TRUE(record(c, 0.5).as_object().at("gap_interval").is_null());
    EXPECT_TRUE(record(c, 0.5).as_object().at("beyond_noise").is_null());
  }
}

TEST(Pairs, StepNoiseOfTwoPairs) {
  const auto pair = [](int seed) {
    const std::string head = R"({"type":"run","config":{"seed":)" + std::to_string(seed) + "}}\n";
    return runs_of(run_of(head + step(1, 8, "1") + step(2, 16, "1") + step(3, 24, "1") + step(4, 32, "1")),
                   run_of(head + step(1, 8, "1") + step(2, 16, "1") + step(3, 24, "1") + step(4, 32, "2")));
  };
  std::vector<Log> one = pair(1), two = pair(2);
  const PairedComparison alone = compare(std::span(one).first(1), std::span(one).last(1));
  const double error = *alone.pairs[0].gap_standard_error;
  EXPECT_GT(error, 0);
  EXPECT_EQ(alone.step_noise, error);
  std::swap(one[1], two[0]);
  EXPECT_NEAR(*compare(one, two).step_noise, error / std::sqrt(2.0), 1e-15);
}

TEST(Pairs, APairWithoutGapMeetsNoGate) {
  std::vector<Log> a = runs_of(run_of(step(1, 8, "1") + step(2, 16, "1")), run_of(step(1, 8, "1") + step(2, 16, "1")));
  std::vector<Log> b =
      runs_of(run_of(step(1, 8, "1") + step(2, 16, "1")), run_of(step(1, 8, "1") + step(2, 16, "null")));
  const PairedComparison c = compare(a, b);
  EXPECT_EQ(c.gap, std::nullopt);
  EXPECT_EQ(verdict(c, 1e9), Verdict::not_met);
}

TEST(Pairs, WhatCannotBePaired) {
  const auto complaint = [](const std::vector<Log>& a, const std::vector<Log>& b) {
    return test::error_of([&] { (void)pairs_of(a, b); });
  };
  const auto two = [](int first, int second, const char* model = "m") {
    return runs_of(seeded(first, "1"), seeded(second, "1", model));
  };
  const std::vector<Log> others = two(3, 4);
  std::vector<Log> runs = two(1, 2);
  EXPECT_EQ(complaint(runs, others),
            runs[0].path + ": no run of the other side has its seed (1), nor that of another run of its side");
  runs = two(1, 1);
  EXPECT_EQ(complaint(runs, others),
            runs[0].path + " and " + runs[1].path + " have the same seed and MODEL, so their partners are unknown");
  runs = runs_of(seeded(1, "1"), run_of(step(1, 8, "1")));
  EXPECT_EQ(complaint(runs, others), runs[1].path + ": its log has no seed, by which runs are paired");
  runs = runs_of(run_of(step(1, 8, "1")), run_of(step(1, 8, "1")));
  EXPECT_EQ(complaint(runs, runs_of(run_of(step(1, 8, "1")))), "2 and 1 runs without settings cannot be paired");
  // One seed, two models.
  const Pairing pairing = pairs_of(two(1, 1, "n"), runs_of(seeded(1, "1", "n"), seeded(1, "1")));
  EXPECT_EQ(pairing.pairs, (std::vector<std::pair<std::size_t, std::size_t>>{{0, 1}, {1, 0}}));
}

// Runs without a partner are named and not used.
TEST(Pairs, RunsWithoutAPartner) {
  std::vector<Log> a, b;
  for (const int seed : {1, 2, 3}) a.push_back(seeded(seed, "1"));
  for (const int seed : {4, 3, 2}) b.push_back(seeded(seed, "1.5"));
  const Pairing pairing = pairs_of(a, b);
  EXPECT_EQ(pairing.pairs, (std::vector<std::pair<std::size_t, std::size_t>>{{1, 2}, {2, 1}}));
  EXPECT_EQ(pairing.alone_a, std::vector<std::size_t>{0});
  EXPECT_EQ(pairing.alone_b, std::vector<std::size_t>{0});
  const PairedComparison c = compare(a, b);
  EXPECT_EQ(c.unpaired, (std::vector<std::string>{"seed1", "seed4"}));
  EXPECT_EQ(c.gap, 0.5);
  const PairedComparison one = compare(a, std::span(b).first(2));  // a side of several runs, and one that matches
  EXPECT_EQ(one.pairs.size(), 1U);
  EXPECT_EQ(record(one, std::nullopt).as_object().at("unpaired").as_array().size(), 3U);
}

TEST(Pairs, PartnerAmongBaselines) {
  const std::vector<Log> baselines = runs_of(seeded(1, "1"), seeded(2, "1"), seeded(2, "1", "n"));
  EXPECT_EQ(partner_of(seeded(1, "1", "n"), baselines), 0U);  // the only one with the seed
  EXPECT_EQ(partner_of(seeded(2, "1", "n"), baselines), 2U);
  EXPECT_EQ(partner_of(seeded(7, "1"), std::span(baselines).first(1)), 0U);
  const Log other = seeded(7, "1"), unclear = seeded(2, "1", "o");
  EXPECT_EQ(test::error_of([&] { (void)partner_of(other, baselines); }), other.path + ": no baseline has its seed (7)");
  EXPECT_EQ(test::error_of([&] { (void)partner_of(unclear, baselines); }),
            unclear.path + ": not one baseline but 0 have its seed (2) and MODEL");
}

// The gap of the evaluations is that of the last ones at equal tokens, after a step.
TEST(Pairs, GapOfEvaluations) {
  const auto evaluated = [](int seed, const std::string& first, const std::string& second) {
    const auto eval = [](int at, const std::string& loss) {
      return R"({"type":"eval","step":)" + std::to_string(at) + R"(,"loss":)" + loss + "}\n";
    };
    return run_of(R"({"type":"run","config":{"seed":)" + std::to_string(seed) + "}}\n" + eval(0, "9") +
                  step(1, 8, "1") + eval(1, first) + step(2, 16, "1") + (second.empty() ? "" : eval(2, second)));
  };
  std::vector<Log> a, b;
  for (const int seed : {1, 2, 3}) a.push_back(evaluated(seed, "2", "1"));
  b.push_back(evaluated(1, "7", "1.25"));
  b.push_back(evaluated(2, "7", "1.5"));
  b.push_back(evaluated(3, "2.75", ""));  // the last evaluation of both is that of step 1
  const PairedComparison c = compare(a, b);
  EXPECT_EQ(c.pairs[2].eval_gap, 0.75);
  EXPECT_EQ(c.eval_gap, 0.5);
  EXPECT_NEAR(*c.eval_interval, 0.25 * 4.30265 / std::sqrt(3.0), 1e-5);
  const json::Value r = record(c, std::nullopt);
  EXPECT_EQ(r.as_object().at("eval_beyond_noise").as_bool(), false);
  EXPECT_EQ(r.as_object().at("eval_more_pairs").as_int(), 1);  // 0.25 x 3.18245 / 2 < 0.5
  EXPECT_TRUE(r.as_object().at("more_pairs").is_null());       // gaps of exactly 0
  b[0] = evaluated(1, "7", "null");
  EXPECT_EQ(compare(a, b).eval_gap, std::nullopt);
  const Log before = run_of(R"({"type":"eval","step":0,"loss":9})"
                            "\n" +
                            step(1, 8, "1"));
  EXPECT_EQ(compare(before, before).eval_gap, std::nullopt);
}

// The interval of n pairs with standard deviation s is t(n - 1) s / sqrt(n). Values of t, any textbook: 2.570582 for 5,
// 2.446912 for 6, 2.228139 for 10, 2.200985 for 11 degrees of freedom.
TEST(Pairs, MorePairsThatTell) {
  const double three = 4.302653 / std::sqrt(3.0);  // standard deviation 1
  EXPECT_EQ(more_pairs(three, 3, 2.570582 / std::sqrt(6.0) + 1e-5), 3U);
  EXPECT_EQ(more_pairs(three, 3, 2.570582 / std::sqrt(6.0) - 1e-5), 4U);
  EXPECT_EQ(more_pairs(three, 3, 2.228139 / std::sqrt(11.0) + 1e-5), 8U);
  EXPECT_EQ(more_pairs(three, 3, 2.228139 / std::sqrt(11.0) - 1e-5), 9U);
  EXPECT_EQ(more_pairs(three, 3, 0), std::nullopt);
  EXPECT_EQ(more_pairs(three, 3, 0.06), std::nullopt);       // 1.9623 / sqrt(1000) = 0.0621
  EXPECT_EQ(more_pairs(three, 3, 0.063), 968U);              // (1.9624 / 0.063)^2 = 970.3
  const PairedComparison c = gaps({"1.25", "1.5", "1.75"});  // 0.5 +- 0.621
  EXPECT_EQ(pairs_to_tell(c, c.gap, c.interval), 1U);
  EXPECT_EQ(pairs_to_gate(c, 1.0), 1U);
  EXPECT_EQ(pairs_to_gate(c, 0.5), std::nullopt);  // no number of pairs would
  EXPECT_EQ(pairs_to_gate(c, 1.125), std::nullopt);
}

TEST(Pairs, NamesOfSides) {
  const auto names = [](const std::vector<std::vector<std::string>>& runs) {
    std::string all;
    for (const std::string& name : side_names(runs)) all += name + ";";
    return all;
  };
  EXPECT_EQ(names({{"bf16-1", "bf16-2"}, {"fp8-1", "fp8-12"}}), "bf16;fp8;");
  EXPECT_EQ(names({{"bf16_lr=0.1_seed=1", "bf16_lr=0.1_seed=2"}, {"fp8_seed=10", "fp8_seed=12"}}), "bf16_lr=0.1;fp8;");
  EXPECT_EQ(names({{"run-1"}, {"run-2"}, {"run-3"}}), "run-1;run-2;run-3;");
  EXPECT_EQ(names({{"1-a", "2-a"}, {"x-1", "x-2"}}), "A;B;");
  EXPECT_EQ(names({{"s-1", "s-2"}, {"s-3", "s-4"}}), "A;B;");
}

TEST(Pairs, NumbersThatOverflowAreNotMeasured) {
  const Log a = run_of(step(1, 8, "1e308")), b = run_of(step(1, 8, "-1e308"));
  const PairedComparison c = compare(std::span(&a, 1), std::span(&b, 1));
  EXPECT_EQ(c.gap, std::nullopt);
  EXPECT_EQ(verdict(c, 1), Verdict::not_met);
}

TEST(Pairs, WithoutSettingsInTheirOrder) {
  const std::vector<Log> a = runs_of(run_of(step(1, 8, "1")), run_of(step(1, 8, "2")));
  const PairedComparison c = compare(a, a);
  EXPECT_EQ(c.gap, 0);
  EXPECT_EQ(c.unknown.size(), 4U);
  std::vector<Log> twice = runs_of(run_of(step(1, 8, "1")), run_of(step(1, 8, "2")));
  twice[1].path = twice[0].path;
  EXPECT_EQ(test::error_of([&] { (void)compare(a, twice); }), twice[0].path + ": given twice on one side");
  EXPECT_TRUE(differences(a[0], seeded(1, "1")).empty());
}

TEST(Settings, EachKindOfDifference) {
  const Log a = with_config(R"("lr":3e-4,"precision":"bf16","steps":100,"seed":1,"betas":"0.9,0.95","out":"a")");
  const Log b = with_config(R"("lr":0.001,"precision":"fp8","steps":200,"seed":2,"betas":"0.9,0.95","out":"b")");
  EXPECT_EQ(names(differences(a, b)), "lr! steps! precision seed ");
  EXPECT_EQ(differences(a, b).at(0), (Difference{"lr", "3e-04", "0.001", true}));
  EXPECT_TRUE(differences(a, a).empty());
  const PairedComparison c = compare(std::span(&a, 1), std::span(&b, 1));
  EXPECT_EQ(names(refused(c, std::array<std::string, 1>{"lr"})), "steps! ");
  EXPECT_TRUE(refused(c, std::array<std::string, 2>{"steps", "lr"}).empty());
  EXPECT_TRUE(refused(c, std::array<std::string, 1>{"all"}).empty());
}

TEST(Settings, TheGlobalBatchCountsNotItsSplit) {
  const auto split = [](int ranks, int batch, int micro) {
    return with_config(
        R"("batch-size":)" + std::to_string(batch) + R"(,"grad-accumulation":)" + std::to_string(micro),
        R"(,"mesh":{"dp_replicate":1,"dp_shard":)" + std::to_string(ranks) + R"(,"pp":1,"ep":1,"tp":1})");
  };
  EXPECT_EQ(names(differences(split(1, 8, 1), split(2, 2, 2))), "batch-size grad-accumulation ranks ");
  EXPECT_EQ(names(differences(split(1, 8, 1), split(2, 8, 1))), "global-batch! ranks ");
}

TEST(Settings, FlagsThatWereNotGivenHaveTheirResolvedValue) {
  const Log given = with_config(R"("seq-length":128)", R"(,"settings":{"seq-length":128,"lora-rank":4})");
  const Log usual = with_config(R"("seq-length":null)", R"(,"settings":{"seq-length":128,"lora-rank":4})");
  const Log other = with_config(R"("seq-length":null)", R"(,"settings":{"seq-length":64})");
  EXPECT_TRUE(differences(given, usual).empty());
  EXPECT_EQ(differences(given, other).at(0), (Difference{"seq-length", "128", "64", true}));
  // Settings that the log lists as fixed are checked, too.
  const Log rank = with_config(R"("lora-rank":8)", R"(,"settings":{"lora-rank":8})");
  const Log less = with_config(R"("lora-rank":4)", R"(,"settings":{"lora-rank":4})");
  EXPECT_EQ(names(differences(rank, less)), "lora-rank! ");
}

TEST(Settings, ModelsAndDataByTheirDigests) {
  const auto from = [](const std::string& data, const std::string& digest, const std::string& model) {
    return with_config(R"("data":")" + data + "\"",
                       R"(,"model":{"layers":2},"settings":{"data":")" + digest + R"(","model":")" + model + "\"}");
  };
  EXPECT_TRUE(differences(from("x.h5", "d", "m"), from("y.h5", "d", "m")).empty());
  EXPECT_EQ(names(differences(from("x.h5", "d", "m"), from("x.h5", "e", "n"))), "model! data! ");
  const Log plain = with_config(R"("data":"x.h5")", R"(,"model":{"layers":2})");
  EXPECT_TRUE(differences(from("x.h5", "d", "m"), plain).empty());
  EXPECT_EQ(names(differences(from("y.h5", "d", "m"), plain)), "data! ");
  EXPECT_EQ(names(differences(with_config("", R"(,"model":{"layers":3})"), plain)), "model! ");
}

// A recipe means nothing in bf16, so that a run in two phases has one from its second phase on.
TEST(Settings, ValuesThatBeginLaterSayWhen) {
  const auto head = [](const std::string& precision) {
    return R"({"type":"run","config":{"precision":")" + precision + R"(","recipe":"tensorwise"}})" + "\n";
  };
  const Log fp8 = run_of(head("fp8") + step(1, 8, "1") + step(2, 16, "1"));
  const Log phases = run_of(head("bf16") + step(1, 8, "1") + head("fp8") + step(2, 16, "1"));
  EXPECT_EQ(differences(fp8, phases).at(0), (Difference{"precision", "fp8", "bf16, from 2 fp8", false}));
  EXPECT_EQ(differences(fp8, phases).at(1), (Difference{"recipe", "tensorwise", "from 2 tensorwise", false}));
}

TEST(Settings, ChangesOfAResumedRun) {
  const auto head = [](const std::string& lr) { return R"({"type":"run","config":{"lr":)" + lr + "}}\n"; };
  const Log changed = run_of(head("1") + step(1, 8, "1") + step(2, 16, "1") + head("2") + step(3, 24, "1"));
  const Log same = run_of(head("1") + step(1, 8, "1") + step(2, 16, "1") + head("1") + step(3, 24, "1"));
  ASSERT_EQ(changed.settings.size(), 2U);
  EXPECT_EQ(changed.settings[1].step, 3);
  EXPECT_EQ(same.settings.size(), 1U);
  EXPECT_EQ(differences(changed, same).at(0), (Difference{"lr", "1, from 3 2", "1", true}));
  // Steps that a resumed run repeats replace their settings as well.
  const Log again = run_of(head("1") + step(1, 8, "1") + head("2") + step(2, 16, "1") + head("1") + step(2, 16, "1"));
  EXPECT_EQ(again.settings.size(), 1U);
  const Log anew = run_of(head("1") + step(1, 8, "1") + head("2") + step(1, 8, "1"));
  EXPECT_EQ(setting_text(anew, "lr"), "2");
}

}  // namespace
}  // namespace fp8::log
