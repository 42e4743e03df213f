// Choices of tokens: frequencies, limits, ties, and independence of everything but the seed and the numbers.
#include "fp8/generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fp8_test.h"

namespace fp8::generate {
namespace {

const std::vector<float> kLogits{0.5f, 2.0f, -1.0f, 2.0f, 0.0f, 1.0f};

std::vector<double> probabilities(double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float x : kLogits) sum += p.emplace_back(std::exp(static_cast<double>(x) / temperature));
  for (double& x : p) x /= sum;
  return p;
}

// Share of each id among many choices.
std::vector<double> shares(const Sampling& sampling) {
  constexpr int kChoices = 40000;
  Sampler sampler(sampling);
  std::vector<double> share(kLogits.size());
  for (int i = 0; i < kChoices; ++i) share[sampler.choose(kLogits, 0, static_cast<std::uint64_t>(i))] += 1.0 / kChoices;
  return share;
}

TEST(Sampler, TemperatureZeroTakesTheFirstOfTheLargest) {
  EXPECT_EQ(Sampler({.temperature = 0}).choose(kLogits, 0, 0), 1u);
}

TEST(Sampler, FrequenciesAreTheProbabilities) {
  for (const double temperature : {0.7, 1.0, 3.0}) {
    const std::vector<double> share = shares({.temperature = temperature, .seed = 5}), p = probabilities(temperature);
    for (std::size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(share[i], p[i], 0.01) << i;
  }
}

TEST(Sampler, TopKKeepsTheMostProbableAndOfEqualsTheFirst) {
  const std::vector<double> p = probabilities(1), three = shares({.top_k = 3});
  const double sum = p[1] + p[3] + p[5];
  for (const std::size_t i : {1, 3, 5}) EXPECT_NEAR(three[i], p[i] / sum, 0.01);
  EXPECT_EQ(three[0] + three[2] + three[4], 0);
  EXPECT_NEAR(shares({.top_k = 1})[1], 1, 1e-9);
  EXPECT_NEAR(shares({.top_k = 100})[2], p[2], 0.01);
}

TEST(Sampler, TopPKeepsTheFewestThatReachTheSum) {
  const std::vector<double> p = probabilities(1);
  const auto kept = [](const std::vector<double>& share) {
    return std::ranges::count_if(share, [](double s) { return s > 0; });
  };
  EXPECT_EQ(kept(shares({.top_p = 1e-9})), 1);
  EXPECT_EQ(kept(shares({.top_p = p[1] + p[3] - 1e-6})), 2);
  EXPECT_EQ(kept(shares({.top_p = p[1] + p[3] + 1e-6})), 3);
  EXPECT_NEAR(shares({.top_p = p[1] + p[3] + 1e-6})[5], p[5] / (p[1] + p[3] + p[5]), 0.01);
  EXPECT_EQ(kept(shares({.top_k = 2, .top_p = 0.99})), 2) << "both limits";
}

TEST(Sampler, AChoiceDependsOnSeedPromptAndNumber) {
  Sampler a({.seed = 1}), b({.seed = 1}), other({.seed = 2});
  int seeds = 0, prompts = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint32_t id = a.choose(kLogits, 3, i);
    if (i % 2 == 0) (void)b.choose(kLogits, 0, i);
    EXPECT_EQ(b.choose(kLogits, 3, i), id);
    seeds += other.choose(kLogits, 3, i) != id ? 1 : 0;
    prompts += b.choose(kLogits, 4, i) != id ? 1 : 0;
  }
  EXPECT_GT(seeds, 50);
  EXPECT_GT(prompts, 50);
}

TEST(Sampler, LogitsThatAreNotFiniteAreAnError) {
  std::vector<float> bad = kLogits;
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    bad[4] = value;
    EXPECT_EQ(test::error_of([&] { Sampler({}).choose(bad, 0, 7); }), "token 7: the model's logits are not finite");
  }
}

}  // namespace
}  // namespace fp8::generate
