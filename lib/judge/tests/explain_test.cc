// Explanations of made-up log-probabilities: tokens of a small set of logits, changed in a known way.
#include "fp8/judge/explain.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fp8_test.h"

namespace fp8::judge {
namespace {

using namespace test;

constexpr std::int64_t kSequences = 12, kLength = 20;

// A deterministic number in [-1, 1].
double noise(std::int64_t a, std::int64_t b, std::int64_t c = 0) {
  return std::sin(static_cast<double>(a * 7919 + b * 104729 + c * 1299709));
}

std::vector<float> logits_of(std::int64_t sequence, std::int64_t position) {
  std::vector<float> z(40);
  for (std::size_t i = 0; i < z.size(); ++i)
    z[i] = static_cast<float>(4 * noise(sequence, position, static_cast<std::int64_t>(i)));
  return z;
}

std::int32_t id_of(std::int64_t sequence, std::int64_t position) {
  return static_cast<std::int32_t>((sequence * 13 + position * 5) % 40);
}

double exact(std::int64_t sequence, std::int64_t position, double inverse = 1) {
  return tempered(logits_of(sequence, position), id_of(sequence, position), inverse);
}

// A candidate whose log-probabilities are `p`, for rollouts with log-probabilities `q`, which state a temperature.
template <class Q, class P>
Candidate candidate(const std::string& name, const Q& q, const P& p, std::int64_t tests = 1, double stated = 1) {
  Candidate c{.checkpoint = "m.h5", .precision = name == "bf16" ? "bf16" : "fp8", .recipe = name == "bf16" ? "" : name};
  TemperatureFit fit;
  for (std::int64_t s = 0; s < kSequences; ++s)
    for (std::int64_t i = 1; i < kLength; ++i) {
      const Token token{s, i, id_of(s, i), q(s, i), p(s, i)};
      c.figures.add(token);
      if (i > 1) add_to(c.shifted.behind, s, k3_of(token.q - p(s, i - 1)));
      if (i + 1 < kLength) add_to(c.shifted.ahead, s, k3_of(token.q - p(s, i + 1)));
      fit.add(token, grid_of(logits_of(s, i), token.id), 1 / stated);
    }
  c.temperature = fit.fit(tests);
  return c;
}

double plain(std::int64_t s, std::int64_t i) { return exact(s, i); }

// A recipe whose log-probabilities differ by up to 0.1.
double coarse(std::int64_t s, std::int64_t i) { return exact(s, i) + 0.1 * noise(s, i, 99); }

Verdict verdict(const std::vector<Candidate>& candidates) { return verdict_of(candidates, best_of(candidates, {})); }

TEST(Explanations, NameTheCandidateThatAgrees) {
  const auto q = [](std::int64_t s, std::int64_t i) { return coarse(s, i) + 1e-3 * noise(s, i, 5); };
  const Verdict v = verdict({candidate("bf16", q, plain), candidate("rowwise", q, coarse)});
  EXPECT_TRUE(v.explained);
  EXPECT_EQ(v.best.candidate, 1U);
  EXPECT_EQ(v.best.change, Change::none);
  EXPECT_TRUE(v.equal.empty());
  EXPECT_EQ(v.text.find("recipe rowwise explains the log-probabilities (k3 "), 0U) << v.text;
  EXPECT_HOLDS(v.text, "; no temperature");
}

TEST(Explanations, ListCandidatesThatAreNotWorse) {
  const Verdict v = verdict({candidate("bf16", coarse, plain), candidate("tensorwise", coarse, coarse),
                             candidate("current", coarse, coarse)});
  EXPECT_EQ(v.best.candidate, 1U);
  EXPECT_EQ(v.equal, std::vector<std::size_t>{2});
  EXPECT_HOLDS(v.text, "; within chance of it: current");
  const auto near = [](std::int64_t seq, std::int64_t i) { return coarse(seq, i) + (seq == 0 ? 0.01 : 0.0); };
  EXPECT_TRUE(verdict({candidate("tensorwise", coarse, coarse), candidate("delayed", coarse, near)}).equal.empty());
  const auto q = [](std::int64_t seq, std::int64_t i) { return coarse(seq, i) + 1e-3 * noise(seq, i, 41); };
  EXPECT_EQ(verdict({candidate("tensorwise", q, coarse), candidate("delayed", q, near)}).equal.size(), 1U);
}

TEST(Explanations, FindATemperature) {
  for (const double t : {0.5, 0.7, 1.3, 2.0}) {
    const auto q = [t](std::int64_t s, std::int64_t i) { return exact(s, i, 1 / t); };
    const Verdict v = verdict({candidate("bf16", q, plain), candidate("rowwise", q, coarse)});
    EXPECT_TRUE(v.explained) << t;
    EXPECT_EQ(v.best.change, Change::temperature) << t;
    EXPECT_NEAR(v.best.temperature, t, 0.005 * t);
    EXPECT_LT(v.best.k3, 1e-6) << t;
  }
}

// The temperature that a record states is part of the candidate; the fitted one is relative to it.
TEST(Explanations, FitTemperaturesRelativeToTheStatedOne) {
  const auto q = [](std::int64_t s, std::int64_t i) { return exact(s, i, 1 / 0.7); };
  const Verdict same = verdict({candidate("bf16", q, q, 1, 0.7)});
  EXPECT_EQ(same.best.change, Change::none);
  const auto raw = [](std::int64_t s, std::int64_t i) { return exact(s, i); };
  const Verdict other = verdict({candidate("bf16", raw, q, 1, 0.7)});
  EXPECT_EQ(other.best.change, Change::temperature);
  EXPECT_NEAR(other.best.temperature, 1 / 0.7, 0.01);
}

// Noise without a temperature: the fit on one half does not hold in the other.
TEST(Explanations, LeaveOutATemperatureWithinChance) {
  const auto q = [](std::int64_t s, std::int64_t i) { return exact(s, i) + 0.3 * noise(s, i, 17); };
  const Candidate c = candidate("bf16", q, plain);
  ASSERT_TRUE(c.temperature);
  EXPECT_FALSE(c.temperature->beats_one);
  const Verdict v = verdict({c});
  EXPECT_FALSE(v.explained);
  EXPECT_EQ(v.text.find("nothing here explains them: bf16, the nearest, leaves mean |d| 0."), 0U) << v.text;
  EXPECT_HOLDS(v.text, ", from token ");
}

TEST(Explanations, FindAShiftByOneToken) {
  const auto late = [](std::int64_t s, std::int64_t i) { return exact(s, i - 1); };
  const auto early = [](std::int64_t s, std::int64_t i) { return exact(s, i + 1); };
  EXPECT_EQ(verdict({candidate("bf16", late, plain)}).best.change, Change::behind);
  const Verdict v = verdict({candidate("bf16", early, plain)});
  EXPECT_EQ(v.best.change, Change::ahead);
  EXPECT_TRUE(v.explained);
  EXPECT_HOLDS(v.text, "bf16 with log-probabilities that are one token early explains");
}

// A constant of each token, the logarithm of the probability that top-p leaves.
TEST(Explanations, NoteLogProbabilitiesThatAreOnlyHigher) {
  const auto q = [](std::int64_t s, std::int64_t i) { return exact(s, i) + 0.2 * std::abs(noise(s, i, 31)); };
  EXPECT_HOLDS(verdict({candidate("bf16", q, plain)}).text,
               "; no token is less probable in the rollouts, as after top-p");
  const auto both = [](std::int64_t s, std::int64_t i) { return exact(s, i) + 0.2 * noise(s, i, 31); };
  EXPECT_EQ(verdict({candidate("bf16", both, plain)}).text.find("top-p"), std::string::npos);
}

// Above 1e-4 a candidate explains if it leaves less than a twentieth of what bf16 leaves.
TEST(Explanations, AcceptAShareOfWhatBf16Leaves) {
  const auto q = [](std::int64_t s, std::int64_t i) { return coarse(s, i) + 0.9 * std::abs(noise(s, i, 3)); };
  for (const auto& [left, explained] : {std::pair{0.1, true}, {0.4, false}}) {
    const auto p = [&, left = left](std::int64_t s, std::int64_t i) { return q(s, i) - left * noise(s, i, 3); };
    const std::vector<Candidate> all{candidate("bf16", q, plain), candidate("rowwise", q, p)};
    const Explanation e{.candidate = 1, .k3 = all[1].figures.k3(), .sequences = all[1].figures.sequences()};
    EXPECT_GT(e.k3, kExplained);
    EXPECT_EQ(explains(e, all), explained) << left << ' ' << e.k3 << ' ' << all[0].figures.k3();
  }
}

TEST(Explanations, ConsiderOtherBeginnings) {
  const auto q = [](std::int64_t s, std::int64_t i) { return exact(s + 50, i); };
  const std::vector<Candidate> all{candidate("bf16", q, plain)};
  const Candidate changed = candidate("bf16", q, q);
  const Explanation best = best_of(all, {{.candidate = 0,
                                          .change = Change::without_first,
                                          .k3 = changed.figures.k3(),
                                          .sequences = changed.figures.sequences()}});
  EXPECT_EQ(best.change, Change::without_first);
  EXPECT_HOLDS(verdict_of(all, best).text, "bf16 without the first token explains");
}

TEST(Gates, BearOnTheFigureOfTheirTrainer) {
  EXPECT_EQ(gate_of("nemo-rl").figure, "mult_prob_error");
  EXPECT_EQ(gate_of("prime-rl").high, 0.015);
  EXPECT_EQ(gate_of("verl").low, 0.5);
  EXPECT_EQ(gate_of("1e-3").high, 1e-3);
  Figures f;
  f.add({0, 1, 0, -1, -1 - std::log(2.0)});
  EXPECT_NEAR(figure_of(gate_of("nemo-rl"), f), 2, 1e-12);
  EXPECT_NEAR(figure_of(gate_of("verl"), f), 0.5, 1e-12);
  EXPECT_NEAR(figure_of(gate_of("0"), f), std::log(2.0) - 0.5, 1e-12);
  EXPECT_EQ(error_of([] { gate_of("nemo"); }),
            "--gate: 'nemo' is neither nemo-rl, prime-rl or verl nor a number from 0");
}

}  // namespace
}  // namespace fp8::judge
