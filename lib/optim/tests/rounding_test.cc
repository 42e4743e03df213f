// Stochastic rounding: unbiased, and its noise depends only on (seed, update, tensor, element).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "adamw_element.h"
#include "blocks.h"

namespace fp8::optim {
namespace {

constexpr std::int64_t kElements = 200000;

/// For each of `n` elements in the same state, whether it was rounded up (away from the low neighbour).
std::vector<bool> rounded_up(const Tensor& t, float low) {
  std::vector<bool> up;
  for (std::int64_t i = 0; i < t.view().size(); ++i) up.push_back(get(t, i) > low);
  return up;
}

double share(const std::vector<bool>& up) {
  return static_cast<double>(std::count(up.begin(), up.end(), true)) / static_cast<double>(up.size());
}

/// Fraction of elements where both patterns are rounded up, minus the fraction expected under independence.
double covariance(const std::vector<bool>& a, const std::vector<bool>& b) {
  double both = 0;
  for (std::size_t i = 0; i < a.size(); ++i) both += a[i] && b[i] ? 1 : 0;
  return both / static_cast<double>(a.size()) - share(a) * share(b);
}

/// The largest bfloat16 that is not above v > 0.
float floor_bf16(float v) {
  return dtype::to_float(Bf16{static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v) >> 16)});
}

/// One update of equal elements; the elements where master, first and second moment were rounded up.
struct Pattern {
  std::vector<bool> p, m, v;
  Element exact;
};

Pattern pattern_of(std::uint64_t seed, std::int64_t update, std::uint32_t tensor) {
  State state(kElements, DType::bf16, DType::bf16, DType::bf16);
  for (std::int64_t i = 0; i < kElements; ++i) {
    set(state.master, i, 1);
    state.gradient.as<float>()[i] = 0.3f;
  }
  const Settings settings;
  Scalars scalars = scalars_of(settings, update, 1e-3, seed, &kOpen);
  scalars.correction1 = 0.1f;
  scalars.correction2_sqrt = std::sqrt(0.05f);
  AdamwBlock block = state.whole();
  block.tensor = tensor;
  adamw({}, block, settings, scalars);
  const Element exact = adamw_element({1, 0, 0}, 0.3f, coefficients_of(settings, scalars, true));
  return {rounded_up(state.master, floor_bf16(exact.p)), rounded_up(state.m, floor_bf16(exact.m)),
          rounded_up(state.v, floor_bf16(exact.v)), exact};
}

/// Distance of v from its lower bfloat16 neighbour, as a fraction of the spacing.
double fraction(float v) { return static_cast<double>(std::bit_cast<std::uint32_t>(v) & 0xFFFFu) / 65536.0; }

TEST(StochasticRounding, IsUnbiased) {
  const Pattern pattern = pattern_of(1, 1, 0);
  const double four_sigma = 4 * std::sqrt(0.25 / static_cast<double>(kElements));
  EXPECT_NEAR(share(pattern.p), fraction(pattern.exact.p), four_sigma);
  EXPECT_NEAR(share(pattern.m), fraction(pattern.exact.m), four_sigma);
  EXPECT_NEAR(share(pattern.v), fraction(pattern.exact.v), four_sigma);
  for (const float v : {pattern.exact.p, pattern.exact.m, pattern.exact.v}) {
    EXPECT_GT(fraction(v), 0.02) << "the test would be vacuous";
    EXPECT_LT(fraction(v), 0.98) << "the test would be vacuous";
  }
}

TEST(StochasticRounding, NoiseIsIndependent) {
  const Pattern a = pattern_of(1, 1, 0);
  const double four_sigma = 4 * 0.25 / std::sqrt(static_cast<double>(kElements));
  EXPECT_NEAR(covariance(a.p, a.m), 0, four_sigma);
  EXPECT_NEAR(covariance(a.p, a.v), 0, four_sigma);
  EXPECT_NEAR(covariance(a.m, a.v), 0, four_sigma);
  std::vector<bool> neighbour(a.p.begin() + 1, a.p.end());
  neighbour.push_back(a.p[0]);
  EXPECT_NEAR(covariance(a.p, neighbour), 0, four_sigma);
  for (const Pattern& b : {pattern_of(2, 1, 0), pattern_of(1, 2, 0), pattern_of(1, 1, 1)}) {
    EXPECT_NEAR(covariance(a.p, b.p), 0, four_sigma);
    EXPECT_NEAR(covariance(a.m, b.m), 0, four_sigma);
    EXPECT_NEAR(covariance(a.v, b.v), 0, four_sigma);
  }
  EXPECT_EQ(pattern_of(1, 1, 0).p, a.p);
}

TEST(StochasticRounding, SmallStepsAreNotLost) {
  State state(kElements, DType::bf16, DType::f32, DType::bf16);
  for (std::int64_t i = 0; i < kElements; ++i) set(state.master, i, 1);
  const Settings settings{.weight_decay = 0.01f};
  for (std::int64_t t = 1; t <= 20; ++t) {
    adamw({}, state.whole(), settings, scalars_of(settings, t, 1e-2, 5, &kOpen));
  }
  double mean = 0;
  for (std::int64_t i = 0; i < kElements; ++i) mean += static_cast<double>(get(state.master, i)) / kElements;
  EXPECT_NEAR(mean, std::pow(1 - 1e-4, 20), 2e-5) << "each step is 1/39 of the distance to the next bfloat16";
}

TEST(StochasticRounding, KeepsRepresentableValues) {
  State state(1000, DType::bf16, DType::bf16, DType::bf16);
  const std::string before = bytes_of(state.master) + bytes_of(state.m) + bytes_of(state.v);
  const Settings settings;
  adamw({}, state.whole(false), settings, scalars_of(settings, 1, 1e-2, 5, &kOpen));
  EXPECT_EQ(bytes_of(state.master) + bytes_of(state.m) + bytes_of(state.v), before) << "no gradient, no decay";
}

}  // namespace
}  // namespace fp8::optim
