// AdamW against the formula in double precision, skipped updates, and reproducibility of all bits.
#include <gtest/gtest.h>
#include <omp.h>

#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "adamw_kernels.h"
#include "blocks.h"
#include "fp8_test.h"
#include "isas.h"

namespace fp8::optim {
namespace {

/// The formula, in double.
struct Reference {
  std::vector<double> p, m, v;

  void update(const State& state, std::int64_t t, double lr, double gradient_scale, double decay) {
    const double b1 = 0.9, b2 = 0.95;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = gradient_scale * static_cast<double>(state.gradient.as<float>()[i]);
      p[i] *= 1 - lr * decay;
      m[i] = b1 * m[i] + (1 - b1) * g;
      v[i] = b2 * v[i] + (1 - b2) * g * g;
      const double root = std::sqrt(v[i]) / std::sqrt(1 - std::pow(b2, static_cast<double>(t)));
      p[i] -= lr / (1 - std::pow(b1, static_cast<double>(t))) * m[i] / (root + 1e-8);
    }
  }
};

class AdamW : public testing::TestWithParam<std::tuple<std::int64_t, bool>> {};

TEST_P(AdamW, FollowsTheFormula) {
  const auto [n, decay] = GetParam();
  State state(n, DType::f32, DType::f32, DType::bf16);
  Reference reference;
  for (std::int64_t i = 0; i < n; ++i) reference.p.push_back(static_cast<double>(get(state.master, i)));
  reference.m.resize(reference.p.size());
  reference.v.resize(reference.p.size());
  const Settings settings;
  for (std::int64_t t = 1; t <= 30; ++t) {
    state.next_gradient(t);
    const double norm = 1.0 + static_cast<double>(t % 3), lr = 1e-2 / static_cast<double>(t);
    *state.amax.as<float>() = 0;
    const Gate gate{.gradient_scale = static_cast<float>(std::min(1.0, 2.0 / norm))};
    adamw({}, state.whole(decay), settings, scalars_of(settings, t, lr, 0, &gate));
    reference.update(state, t, lr, static_cast<double>(gate.gradient_scale), decay ? 0.1 : 0.0);
  }
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto k = static_cast<std::size_t>(i);
    ASSERT_NEAR(static_cast<double>(get(state.master, i)), reference.p[k], 1e-6) << i;
    ASSERT_NEAR(static_cast<double>(get(state.m, i)), reference.m[k], 1e-8) << i;
    ASSERT_NEAR(static_cast<double>(get(state.v, i)), reference.v[k], 1e-6 * reference.v[k]) << i;
    ASSERT_EQ(state.compute_weight.as<Bf16>()[i].bits, dtype::to_bf16(get(state.master, i)).bits) << i;
    largest = std::max(largest, std::abs(get(state.master, i)));
  }
  EXPECT_EQ(*state.amax.as<float>(), largest);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AdamW, testing::Combine(testing::Values(1, 15, 4096, 4097, 20000), testing::Bool()));

TEST(AdamW, FirstStepMovesByTheRate) {
  State state(2, DType::f32, DType::f32, DType::f32);
  state.master.as<float>()[0] = 1;
  state.master.as<float>()[1] = -1;
  state.gradient.as<float>()[0] = 4;
  state.gradient.as<float>()[1] = -0.25f;
  const Settings settings{.beta1 = 0.5f, .beta2 = 0.75f, .eps = 0, .weight_decay = 0.5f};
  adamw({}, state.whole(), settings, scalars_of(settings, 1, 0.25, 0, &kOpen));
  EXPECT_EQ(get(state.master, 0), 1 - 0.125f - 0.25f);
  EXPECT_EQ(get(state.master, 1), -1 + 0.125f + 0.25f);
  EXPECT_EQ(get(state.m, 0), 2);
  EXPECT_EQ(get(state.v, 0), 4);
  EXPECT_EQ(get(state.compute_weight, 1), get(state.master, 1));
}

/// Master, moments and compute weight of all types.
const std::vector<std::tuple<DType, DType, DType>> kTypes{
    {DType::f32, DType::f32, DType::bf16},  {DType::f32, DType::f32, DType::f32},
    {DType::f32, DType::bf16, DType::bf16}, {DType::bf16, DType::f32, DType::bf16},
    {DType::bf16, DType::bf16, DType::f32}, {DType::bf16, DType::bf16, DType::bf16}};

TEST(AdamW, SkippingChangesNothingAndStillFillsCopyAndAmax) {
  for (const auto& [master, moments, compute_weight] : kTypes) {
    State state(5000, master, moments, compute_weight);
    const Settings settings;
    state.next_gradient(1);
    adamw({}, state.whole(), settings, scalars_of(settings, 1, 1e-2, 3, &kOpen));
    const std::string before = state.bytes();
    std::memset(state.compute_weight.view().data, 0xEE, state.compute_weight.view().bytes());
    *state.amax.as<float>() = 0;
    state.gradient.as<float>()[17] = std::numeric_limits<float>::quiet_NaN();
    const Gate shut{.gradient_scale = std::numeric_limits<float>::quiet_NaN(), .skip = 1};
    adamw({}, state.whole(), settings, scalars_of(settings, 2, 1e-2, 3, &shut));
    EXPECT_EQ(state.bytes(), before);
  }
}

TEST(AdamW, NeitherBlocksNorThreadsChangeABit) {
  constexpr std::int64_t kElements = 20001;
  const int threads_before = omp_get_max_threads();
  for (const auto& [master, moments, compute_weight] : kTypes) {
    State whole(kElements, master, moments, compute_weight), parts(kElements, master, moments, compute_weight);
    const Settings settings;
    for (std::int64_t t = 1; t <= 3; ++t) {
      whole.next_gradient(t);
      parts.next_gradient(t);
      const Scalars scalars = scalars_of(settings, t, 1e-2, 42, &kOpen);
      omp_set_num_threads(1);
      adamw({}, whole.whole(), settings, scalars);
      omp_set_num_threads(3);
      std::int64_t begin = 0;
      for (const std::int64_t end :
           {std::int64_t{1}, std::int64_t{4098}, std::int64_t{4098}, std::int64_t{12345}, kElements}) {
        adamw({}, parts.block(begin, end), settings, scalars);
        begin = end;
      }
    }
    EXPECT_EQ(whole.bytes(), parts.bytes());
  }
  omp_set_num_threads(threads_before);
}

TEST(AdamW, InstructionSetsChangeNoBit) {
  constexpr std::int64_t kElements = 777;
  const Settings settings;
  for (const std::size_t master : {0U, 1U})
    for (const std::size_t moments : {0U, 1U})
      for (const std::size_t compute_weight : {0U, 1U}) {
        const auto type = [](std::size_t i) { return i == 0 ? DType::f32 : DType::bf16; };
        std::string expected;
        double squares = 0;
        for (const Isa isa : test::isas()) {
          State state(kElements, type(master), type(moments), type(compute_weight));
          const AdamwKernels& kernels = adamw_kernels(isa);
          for (std::int64_t t = 1; t <= 3; ++t) {
            state.next_gradient(t);
            const AdamwBlock b = state.whole();
            const Update u{.arrays = {b.master.data, b.gradient.as<float>(), b.m.data, b.v.data, b.compute_weight.data},
                           .coefficients = coefficients_of(settings, scalars_of(settings, t, 1e-2, 42, &kOpen), true),
                           .gate = kOpen,
                           .random = {42, t, 5, 1003}};
            const std::uint32_t amax = kernels.update[master][moments][compute_weight](u, 0, kElements);
            *state.amax.as<float>() = std::bit_cast<float>(amax);
          }
          const double sum = kernels.sum_of_squares(state.gradient.as<float>(), kElements);
          if (isa == Isa::baseline) {
            expected = state.bytes();
            squares = sum;
          }
          EXPECT_EQ(state.bytes(), expected) << name_of(isa);
          EXPECT_EQ(sum, squares) << name_of(isa);
        }
      }
}

TEST(AdamW, AmaxIsTheLargestOfAllBlocksAndNanWins) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  State state(3, DType::f32, DType::f32, DType::f32);
  const Gate shut{.skip = 1};
  Scalars skip;
  skip.gate = &shut;
  const auto amax_of = [&](float value) {
    set(state.master, 1, value);
    adamw({}, state.whole(), {}, skip);
    return *state.amax.as<float>();
  };
  EXPECT_EQ(amax_of(-5), 5);
  EXPECT_EQ(amax_of(3), 5);
  EXPECT_EQ(amax_of(-inf), inf);
  EXPECT_TRUE(std::isnan(amax_of(-nan)));
  EXPECT_TRUE(std::isnan(amax_of(1)));
}

TEST(AdamW, CopyMayBeTheMasterOrNothing) {
  const Settings settings;
  for (const bool copies : {true, false}) {
    State state(100, DType::f32, DType::f32, DType::f32), expected(100, DType::f32, DType::f32, DType::f32);
    state.next_gradient(1);
    expected.next_gradient(1);
    AdamwBlock block = state.whole();
    block.compute_weight = copies ? state.master.view() : View{};
    block.amax = {};
    adamw({}, block, settings, scalars_of(settings, 1, 1e-2, 0, &kOpen));
    adamw({}, expected.whole(), settings, scalars_of(settings, 1, 1e-2, 0, &kOpen));
    EXPECT_EQ(bytes_of(state.master), bytes_of(expected.master));
    EXPECT_EQ(bytes_of(state.compute_weight), std::string(400, '\0'));
    EXPECT_EQ(*state.amax.as<float>(), 0);
  }
}

TEST(AdamW, DryRunsAndEmptyBlocksWriteNothing) {
  State state(10, DType::f32, DType::f32, DType::bf16);
  state.next_gradient(1);
  const std::string before = state.bytes();
  device::Context dry;
  dry.dry = true;
  const Settings settings;
  adamw(dry, state.whole(), settings, scalars_of(settings, 1, 1e-2, 0, &kOpen));
  adamw({}, state.block(4, 4), settings, scalars_of(settings, 1, 1e-2, 0, &kOpen));
  EXPECT_EQ(state.bytes(), before);
}

void expect_error(const AdamwBlock& block, const std::string& message) {
  EXPECT_EQ(test::error_of([&] { adamw({}, block, {}, scalars_of({}, 1, 1e-2, 0, &kOpen)); }), message);
}

TEST(AdamW, RefusesMismatchedViews) {
  const State state(10, DType::f32, DType::f32, DType::bf16), other(9, DType::bf16, DType::bf16, DType::bf16);
  const Tensor bytes(DType::u8, {10}), ten(DType::bf16, {10}), matrix(DType::f32, {10, 2});
  AdamwBlock b = state.whole();
  b.gradient = other.gradient.view();
  expect_error(b, "AdamW: gradient differs from master in size");
  b = state.whole();
  b.v = ten.view();
  expect_error(b, "AdamW: moments differ in type");
  b = state.whole();
  b.master = bytes.view();
  expect_error(b, "AdamW: master: expected float32 or bfloat16, not uint8");
  b = state.whole();
  b.m = b.v = bytes.view();
  expect_error(b, "AdamW: moments: expected float32 or bfloat16, not uint8");
  b = state.whole();
  b.compute_weight = bytes.view();
  expect_error(b, "AdamW: compute weight: expected float32 or bfloat16, not uint8");
  b = state.whole();
  b.gradient = matrix.view().columns(0, 1);
  expect_error(b, "AdamW: gradient is not contiguous");
  b = state.whole();
  b.m.device = device::DeviceType::cuda;
  expect_error(b, "AdamW: first moment is not on the context's device");
  b = state.whole();
  b.amax = state.gradient.view();
  expect_error(b, "AdamW: amax must be a scalar");
}

TEST(Scalars, Correct) {
  const Settings settings{.beta1 = 0.5f, .beta2 = 0.75f, .eps = 1e-8f, .weight_decay = 0};
  const Scalars s = scalars_of(settings, 2, 0.125, 99, &kOpen);
  EXPECT_EQ(s.lr, 0.125f);
  EXPECT_EQ(s.correction1, 0.75f);
  EXPECT_EQ(s.correction2_sqrt, static_cast<float>(std::sqrt(0.4375)));
  EXPECT_EQ(s.update, 2);
  EXPECT_EQ(s.seed, 99u);
  EXPECT_EQ(s.gate, &kOpen);
  EXPECT_THROW(scalars_of(settings, 0, 0.1, 0, &kOpen), Error);
}

TEST(Gate, ClipsAndSkips) {
  const auto gate_of = [](double loss, double norm, double clip) {
    const double square_sum = norm * norm;
    Gate gate{-1, -1};
    set_gate({}, &loss, &square_sum, clip, &gate);
    return gate;
  };
  EXPECT_EQ(gate_of(2, 3, 1.5).gradient_scale, static_cast<float>(1.5 / (3.0 + 1e-6)));
  EXPECT_EQ(gate_of(2, 3, 1.5).skip, 0);
  EXPECT_EQ(gate_of(2, 1, 1.5).gradient_scale, 1.0f);
  EXPECT_EQ(gate_of(2, 100, 0).gradient_scale, 1.0f) << "no clipping";
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {inf, -inf, std::nan("")}) {
    EXPECT_EQ(gate_of(bad, 1, 1).skip, 1);
    EXPECT_EQ(gate_of(2, bad, 1).skip, 1);
  }
}

TEST(SumOfSquares, IsExactForIntegersAndTheSameForAnyThreads) {
  const int threads_before = omp_get_max_threads();
  for (const std::int64_t n : {0, 1, 31, 33, 32768, 100003}) {
    const Tensor x(DType::f32, {n}), y(DType::f32, {n});
    double expected = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      x.as<float>()[i] = static_cast<float>(i % 100 - 50);
      y.as<float>()[i] = std::sin(static_cast<float>(i));
      expected += static_cast<double>((i % 100 - 50) * (i % 100 - 50));
    }
    omp_set_num_threads(1);
    EXPECT_EQ(squares_of(x.view()), expected);
    const double one = squares_of(y.view());
    omp_set_num_threads(3);
    EXPECT_EQ(squares_of(x.view()), expected);
    EXPECT_EQ(squares_of(y.view()), one);
  }
  omp_set_num_threads(threads_before);
  const Tensor matrix(DType::f32, {3, 3}), half(DType::bf16, {3});
  EXPECT_THROW(squares_of(matrix.view().columns(0, 1)), Error);
  EXPECT_THROW(squares_of(half.view()), Error);
  matrix.as<float>()[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(squares_of(matrix.view())));
}

}  // namespace
}  // namespace fp8::optim
