// Muon against its formulas in double precision, skipped updates, and reproducibility of all bits.
#include "fp8/optim/muon.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <vector>

#include "blocks.h"
#include "fp8_test.h"

namespace fp8::optim {
namespace {

using Matrix = std::vector<double>;  // row-major

// c [m, n] = a [m, k] b [k, n]
Matrix product(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t k, std::int64_t n) {
  Matrix c(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t l = 0; l < k; ++l)
        c[static_cast<std::size_t>(i * n + j)] +=
            a[static_cast<std::size_t>(i * k + l)] * b[static_cast<std::size_t>(l * n + j)];
  return c;
}

Matrix transposed(const Matrix& a, std::int64_t m, std::int64_t n) {
  Matrix t(a.size());
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      t[static_cast<std::size_t>(j * m + i)] = a[static_cast<std::size_t>(i * n + j)];
  return t;
}

// The iteration of a matrix with at most as many rows as columns.
Matrix iterated(Matrix x, std::int64_t m, std::int64_t n) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::fmax(std::sqrt(squares), 1e-7);
  for (int i = 0; i < 5; ++i) {
    const Matrix gram = product(x, transposed(x, m, n), m, n, m);
    Matrix polynomial = product(gram, gram, m, m, m);
    for (std::size_t j = 0; j < gram.size(); ++j) polynomial[j] = -4.775 * gram[j] + 2.0315 * polynomial[j];
    const Matrix step = product(polynomial, x, m, m, n);
    for (std::size_t j = 0; j < x.size(); ++j) x[j] = 3.4445 * x[j] + step[j];
  }
  return x;
}

// A matrix without structure, times `scale`.
Tensor matrix(DType type, std::int64_t rows, std::int64_t columns, float scale = 1) {
  Tensor x(type, {rows, columns});
  for (std::int64_t i = 0; i < rows * columns; ++i)
    set(x, i, scale * std::sin(0.37f * static_cast<float>(i * i % 1009)));
  return x;
}

void orthogonalize(const Tensor& x) {
  device::Arena arena(std::size_t{4} << 20, device::DeviceType::host);
  device::Context ctx;
  ctx.arena = &arena;
  gemm::Engine engine;
  optim::orthogonalize(ctx, engine, x.view());
}

class Orthogonalize : public testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {};

TEST_P(Orthogonalize, FollowsTheFormula) {
  const auto [rows, columns] = GetParam();
  for (const auto& [type, scale, bound] : {std::tuple{DType::f32, 1.0f, 2e-5},
                                           {DType::f32, 1e-5f, 2e-5},
                                           {DType::f32, 0.0f, 0.0},
                                           {DType::bf16, 1.0f, 0.05}}) {
    const Tensor x = matrix(type, rows, columns, scale);
    Matrix want;
    for (std::int64_t i = 0; i < rows * columns; ++i) want.push_back(static_cast<double>(get(x, i)));
    want = rows > columns ? transposed(iterated(transposed(want, rows, columns), columns, rows), columns, rows)
                          : iterated(want, rows, columns);
    orthogonalize(x);
    for (std::int64_t i = 0; i < rows * columns; ++i)
      ASSERT_NEAR(static_cast<double>(get(x, i)), want[static_cast<std::size_t>(i)], bound) << i << " times " << scale;
  }
}

INSTANTIATE_TEST_SUITE_P(WideTallSquareAndVectors, Orthogonalize,
                         testing::Values(std::pair{16, 40}, std::pair{40, 16}, std::pair{24, 24}, std::pair{1, 33},
                                         std::pair{33, 1}, std::pair{1, 1}, std::pair{140, 190}, std::pair{190, 140}));

TEST(Orthogonalize, NeedsAContiguousMatrix) {
  const Tensor x = matrix(DType::f32, 4, 8);
  device::Arena arena(4096, device::DeviceType::host);
  device::Context ctx;
  ctx.arena = &arena;
  gemm::Engine engine;
  EXPECT_EQ(test::error_of([&] { optim::orthogonalize(ctx, engine, x.view().columns(0, 4)); }),
            "Muon: needs a contiguous matrix");
}

TEST(Momentum, IsInterpolatedAndLooksAhead) {
  const std::int64_t n = 5000;
  const Tensor g = matrix(DType::f32, 1, n), m = matrix(DType::f32, 1, n, 0.5f), u(DType::f32, {1, n});
  std::vector<double> before;
  for (std::int64_t i = 0; i < n; ++i) before.push_back(static_cast<double>(get(m, i)));
  const Gate gate{.gradient_scale = 0.25f};
  const Scalars scalars = scalars_of({}, 1, 1e-3, 0, &gate);
  momentum({}, {g.view(), m.view(), u.view()}, scalars);
  for (std::int64_t i = 0; i < n; ++i) {
    const double clipped = 0.25 * static_cast<double>(get(g, i));
    const double want = 0.95 * before[static_cast<std::size_t>(i)] + 0.05 * clipped;
    ASSERT_NEAR(static_cast<double>(get(m, i)), want, 1e-7) << i;
    ASSERT_NEAR(static_cast<double>(get(u, i)), 0.95 * want + 0.05 * clipped, 1e-7) << i;
  }
}

TEST(Momentum, OfASkippedStepIsUnchanged) {
  const Tensor g = matrix(DType::f32, 1, 300, NAN), m = matrix(DType::bf16, 1, 300), u = matrix(DType::bf16, 1, 300);
  const std::string before = bytes_of(m);
  const Gate gate{.skip = 1};
  momentum({}, {g.view(), m.view(), u.view()}, scalars_of({}, 1, 1e-3, 0, &gate));
  EXPECT_EQ(bytes_of(m), before);
  for (std::int64_t i = 0; i < 300; ++i) EXPECT_EQ(get(u, i), 0) << i;
}

// One step of a block of a matrix [6, 24] or [24, 6].
float step(MuonScale scale, std::int64_t rows, std::int64_t columns, bool decay) {
  const Tensor master(DType::f32, {1, 1}), direction(DType::f32, {1, 1});
  set(master, 0, 2);
  set(direction, 0, 0.5f);
  Settings settings;
  settings.weight_decay = 0.5f;
  settings.muon_scale = scale;
  muon({}, {master.view(), direction.view(), {}, {}, rows, columns, decay}, settings,
       scalars_of(settings, 1, 0.125, 0, &kOpen));
  return get(master, 0);
}

TEST(MuonStep, ScalesByTheShapeOfTheWholeMatrix) {
  const auto want = [](double scale, bool decay) { return 2 * (decay ? 1 - 0.125 * 0.5 : 1.0) - 0.125 * scale * 0.5; };
  for (const bool decay : {false, true}) {
    EXPECT_NEAR(static_cast<double>(step(MuonScale::rms, 6, 24, decay)), want(0.2 * std::sqrt(24.0), decay), 1e-6);
    EXPECT_NEAR(static_cast<double>(step(MuonScale::rms, 24, 6, decay)), want(0.2 * std::sqrt(24.0), decay), 1e-6);
    EXPECT_NEAR(static_cast<double>(step(MuonScale::original, 6, 24, decay)), want(1, decay), 1e-6);
    EXPECT_NEAR(static_cast<double>(step(MuonScale::original, 24, 6, decay)), want(2, decay), 1e-6);
  }
}

// All that momentum and step of n elements write, in parts that end at these elements, after two updates.
std::string updated(std::int64_t n, const std::vector<std::int64_t>& ends, DType stored, DType direction,
                    int skip = 0) {
  const Tensor master = matrix(stored, 1, n, 0.5f), m(stored, {1, n}), u(direction, {1, n}),
               compute_weight(DType::bf16, {1, n}), g = matrix(DType::f32, 1, n), amax(DType::f32, {1});
  const Settings settings;
  for (std::int64_t t = 1; t <= 2; ++t) {
    const Gate gate{.gradient_scale = 0.3f, .skip = t == 2 ? skip : 0};
    const Scalars scalars = scalars_of(settings, t, 1e-2, 42, &gate);
    const auto part = [&](const Tensor& x, std::int64_t begin, std::int64_t end) {
      return x.view().reshaped({n}).rows(begin, end);
    };
    std::int64_t begin = 0;
    for (const std::int64_t end : ends) {
      momentum({}, {part(g, begin, end), part(m, begin, end), part(u, begin, end), 7, begin}, scalars);
      muon({},
           {part(master, begin, end), part(u, begin, end), part(compute_weight, begin, end), amax.view(), 4, n / 4,
            true, 7, begin},
           settings, scalars);
      begin = end;
    }
  }
  return bytes_of(master) + bytes_of(m) + bytes_of(compute_weight) + bytes_of(amax);
}

TEST(MuonStep, SameBitsForAnyThreadsAndParts) {
  constexpr std::int64_t kSize = 20000;
  for (const DType stored : {DType::f32, DType::bf16})
    for (const DType direction : {DType::f32, DType::bf16}) {
      const int threads = omp_get_max_threads();
      omp_set_num_threads(1);
      const std::string one = updated(kSize, {kSize}, stored, direction);
      omp_set_num_threads(3);
      EXPECT_TRUE(updated(kSize, {kSize}, stored, direction) == one);
      EXPECT_TRUE(updated(kSize, {77, 4096, 13000, kSize}, stored, direction) == one);
      omp_set_num_threads(threads);
      EXPECT_FALSE(updated(kSize, {kSize}, stored, direction, 1) == one) << "the second update changes nothing";
    }
}

TEST(MuonStep, SkippedWritesComputeWeightsAndAmaxOfTheMaster) {
  const Tensor master = matrix(DType::f32, 1, 500), direction = matrix(DType::f32, 1, 500, NAN),
               compute_weight(DType::bf16, {1, 500}), amax(DType::f32, {1});
  const std::string before = bytes_of(master);
  const Gate gate{.skip = 1};
  muon({}, {master.view(), direction.view(), compute_weight.view(), amax.view(), 1, 500, true}, {},
       scalars_of({}, 1, 1e-2, 0, &gate));
  EXPECT_EQ(bytes_of(master), before);
  float largest = 0;
  for (std::int64_t i = 0; i < 500; ++i) {
    EXPECT_EQ(compute_weight.as<Bf16>()[i].bits, dtype::to_bf16(get(master, i)).bits) << i;
    largest = std::max(largest, std::abs(get(master, i)));
  }
  EXPECT_EQ(*amax.as<float>(), largest);
}

}  // namespace
}  // namespace fp8::optim
