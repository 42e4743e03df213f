// Comparison of runs: matching by tokens, gaps, gates.
#include "fp8/log/compare.h"

#include <array>
#include <functional>

#include "run_text.h"

namespace fp8::log {
namespace {

// A run of steps 1 to n with `tokens` each, and the loss as a function of tokens seen.
Log curve(int n, std::int64_t tokens, const std::function<double(double)>& loss) {
  std::string text;
  for (int i = 1; i <= n; ++i) {
    text += step(i, i * tokens, std::to_string(loss(static_cast<double>(i * tokens))));
  }
  return run_of(text);
}

std::string compare_complaint(const Log& a, const Log& b) {
  return test::error_of([&] { (void)compare(a, b); });
}

TEST(Compare, SameTokens) {
  const Log a = curve(8, 4, [](double t) { return 64 - t; }), b = curve(8, 4, [](double t) { return 64.25 - t; });
  const Comparison c = compare(a, b);
  EXPECT_EQ(c.points, 8U);
  EXPECT_EQ(c.window, 4U);
  EXPECT_EQ(c.first_tokens, 4);
  EXPECT_EQ(c.last_tokens, 32);
  EXPECT_EQ(c.gap, 0.25);
  EXPECT_EQ(c.final_gap, 0.25);
  EXPECT_EQ(c.gap_standard_error, 0);
  EXPECT_EQ(c.loss_a, 38);
  EXPECT_EQ(c.loss_b, 38.25);
  EXPECT_EQ(c.speedup, std::nullopt);
  EXPECT_EQ(compare(b, a).gap, -0.25);
}

TEST(Compare, GateIsSymmetric) {
  const Log a = curve(2, 4, [](double) { return 2; }), b = curve(2, 4, [](double) { return 2.5; });
  const std::span<const Log> x(&a, 1), y(&b, 1);
  for (const PairedComparison& c : {compare(x, y), compare(y, x)}) {
    EXPECT_EQ(verdict(c, 0.5), Verdict::met);
    EXPECT_EQ(verdict(c, 0.4375), Verdict::not_met);
    EXPECT_EQ(verdict(c, 0), Verdict::not_met);
  }
  EXPECT_EQ(verdict(compare(x, x), 0), Verdict::met);
}

TEST(Compare, OtherBatchSizesAreInterpolated) {
  const Log a = curve(16, 2, [](double t) { return 64 - t; }), b = curve(5, 6, [](double t) { return 64 - t; });
  for (const Comparison& c : {compare(a, b), compare(b, a)}) {
    EXPECT_EQ(c.points, 5U);
    EXPECT_EQ(c.gap, 0);
  }
  // 3, 6, 9 lie between 2, 4, 6, 8.
  const Log odd = curve(2, 3, [](double t) { return 65 - t; });
  const Comparison c = compare(a, odd);
  EXPECT_EQ(c.points, 2U);
  EXPECT_EQ(c.gap, 1);
  EXPECT_EQ(c.first_tokens, 3);
}

TEST(Compare, OnlyTheCommonRange) {
  const Log a = curve(8, 4, [](double) { return 1; }), b = curve(3, 4, [](double) { return 1; });
  EXPECT_EQ(compare(a, b).last_tokens, 12);
  const Log one = run_of(step(9, 32, "1.5"));
  const Comparison c = compare(a, one);
  EXPECT_EQ(c.points, 1U);
  EXPECT_EQ(c.gap, 0.5);
  EXPECT_EQ(c.gap_standard_error, std::nullopt);
}

// Runs with equally many steps at different numbers of tokens.
std::array<Log, 2> unlike_grids() {
  std::string a, b;
  for (int i = 1; i <= 40; ++i) {
    a += step(i, 7 * i, std::to_string(8 - 0.17 * i + (i * i % 11) / 7.0));
    b += step(i, 7 * i + 3, std::to_string(7.5 - 0.13 * i + (i * i % 13) / 3.0));
  }
  return {run_of(a), run_of(b)};
}

TEST(Compare, SwappedSidesNegateTheGapExactly) {
  const auto [a, b] = unlike_grids();
  const Comparison there = compare(a, b), back = compare(b, a);
  EXPECT_EQ(there.points, back.points);
  EXPECT_EQ(there.first_tokens, back.first_tokens);
  EXPECT_EQ(there.last_tokens, back.last_tokens);
  EXPECT_EQ(*there.gap, -*back.gap);
  EXPECT_EQ(*there.final_gap, -*back.final_gap);
  EXPECT_EQ(there.loss_a, back.loss_b);
  EXPECT_EQ(there.loss_b, back.loss_a);
  EXPECT_EQ(there.gap_standard_error, back.gap_standard_error);
}

// Each point of `b` lies between two records of `a`; the last one is left out if either of them is not finite.
TEST(Compare, PointsBesideALossThatIsNotFiniteAreLeftOut) {
  for (const int bad : {10, 11}) {
    std::string x, y;
    for (int i = 1; i <= 12; ++i) x += step(i, 5 * i, i == bad ? "null" : i < 10 ? "2" : "1");
    for (int i = 2; i <= 5; ++i) y += step(i, 10 * i + 2, "3");  // 22, 32, 42, 52
    const Log a = run_of(x), b = run_of(y);
    const Comparison there = compare(a, b), back = compare(b, a);
    EXPECT_EQ(there.points, 4U);
    EXPECT_EQ(there.window, 2U);  // 42 and 52
    EXPECT_EQ(there.gap, 1) << bad;
    EXPECT_EQ(back.gap, -1) << bad;
    EXPECT_EQ(there.final_gap, std::nullopt) << bad;
    EXPECT_EQ(back.final_gap, std::nullopt) << bad;
  }
}

TEST(Compare, ARunThatDivergedMeetsNoGate) {
  const auto run = [](const std::string& losses, const std::string& end) {
    std::string text;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const auto n = static_cast<std::int64_t>(i + 1);
      text += step(n, 4 * n, losses[i] == 'x' ? "null" : losses.substr(i, 1));
    }
    return run_of(text + end);
  };
  const std::string diverged = R"({"type":"end","step":4,"reason":"diverged"})"
                               "\n";
  const Log good = run("22222222", "");
  const auto answer = [&](const Log& other) {
    const std::span<const Log> a(&good, 1), b(&other, 1);
    const PairedComparison there = compare(a, b), back = compare(b, a);
    EXPECT_TRUE(there.gap);
    EXPECT_EQ(verdict(there, 1), verdict(back, 1));
    EXPECT_EQ(record(there, 1.0).as_object().at("met").as_bool(), verdict(there, 1) == Verdict::met);
    return verdict(there, 1);
  };
  EXPECT_EQ(answer(run("22222222", "")), Verdict::met);
  EXPECT_EQ(answer(run("222222xx", "")), Verdict::not_met);     // half of the window is finite
  EXPECT_EQ(answer(run("2222222222x", "")), Verdict::not_met);  // behind the last matched point
  EXPECT_EQ(answer(run("22222222", diverged)), Verdict::not_met);
  EXPECT_EQ(answer(run("22222x22", "")), Verdict::met);
  // A batch without targets has no loss, which is no divergence.
  const std::string masked = R"({"type":"step","step":9,"tokens":36,"loss":null,"masked":true})"
                             "\n";
  EXPECT_EQ(answer(run("22222222", masked)), Verdict::met);
}

TEST(Compare, NonFiniteLosses) {
  const Log a = run_of(step(1, 4, "2") + step(2, 8, "2") + step(3, 12, "2") + step(4, 16, "2"));
  const Log one = run_of(step(1, 4, "2") + step(2, 8, "2") + step(3, 12, "3") + step(4, 16, "null"));
  EXPECT_EQ(compare(a, one).gap, 1);
  EXPECT_EQ(compare(a, one).final_gap, std::nullopt);
  const Log both = run_of(step(1, 4, "2") + step(2, 8, "2") + step(3, 12, "null") + step(4, 16, "null"));
  const PairedComparison c = compare(std::span(&a, 1), std::span(&both, 1));
  EXPECT_EQ(c.gap, std::nullopt);
  EXPECT_EQ(verdict(c, 1e9), Verdict::not_met);
  EXPECT_TRUE(record(c, 1.0).as_object().at("gap").is_null());
  EXPECT_FALSE(record(c, 1.0).as_object().at("met").as_bool());
}

TEST(Compare, SpeedAndMemory) {
  const auto with = [](const std::string& rest) {
    return run_of(R"({"type":"step","step":1,"tokens":8,"loss":1,)" + rest + "}\n");
  };
  const Log a = with(R"("tokens_per_s":100,"memory_peak_bytes":4096)");
  const Log b = with(R"("tokens_per_s":150,"memory_peak_bytes":1024)");
  const PairedComparison c = compare(std::span(&a, 1), std::span(&b, 1));
  EXPECT_EQ(c.speedup, 1.5);
  EXPECT_EQ(c.memory_ratio, 0.25);
  const json::Object r = record(c, std::nullopt).as_object();
  EXPECT_EQ(r.at("speedup").as_double(), 1.5);
  EXPECT_TRUE(r.at("gate").is_null());
  EXPECT_TRUE(r.at("met").is_null());
  EXPECT_EQ(r.at("b").as_object().at("memory_peak_bytes").as_double(), 1024);
}

TEST(Compare, InvalidRunsAreErrors) {
  const Log a = run_of(step(1, 8, "1"), "a.jsonl"), far = run_of(step(1, 16, "1"));
  EXPECT_EQ(compare_complaint(a, far), "no tokens in common: " + a.path + " has 8 to 8, " + far.path + " has 16 to 16");
  const Log uncounted = run_of(R"({"type":"step","step":1,"loss":1})"
                               "\n");
  EXPECT_EQ(compare_complaint(a, uncounted), uncounted.path + ": has no token counts, by which runs are compared");
  const Log still = run_of(step(1, 8, "1") + step(2, 8, "1"));
  EXPECT_EQ(compare_complaint(still, a),
            still.path + ": the token count does not increase, so the run cannot be compared");
  const Log lossless = run_of(step(1, 8, "null"));
  EXPECT_EQ(compare_complaint(a, lossless), lossless.path + ": contains no finite loss to compare");
  const Log empty = run_of(R"({"type":"run"})"
                           "\n");
  EXPECT_EQ(compare_complaint(empty, a), empty.path + ": contains no steps to compare");
  // The range is between two points of one run and contains no point of the other.
  const Log gap = run_of(step(1, 4, "1") + step(2, 12, "1"));
  EXPECT_EQ(compare(gap, a).points, 1U);
}

}  // namespace
}  // namespace fp8::log
