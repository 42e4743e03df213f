// Routes and the rows of experts against a plain reference in f64.
#include "fp8/ops/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "isas.h"
#include "route_kernels.h"
#include "route_problem.h"

namespace fp8::ops {
namespace {

using Indices = std::vector<std::int32_t>;

// Routes in f64. Tokens of padding have empty lists.
struct Reference {
  std::vector<Values> probabilities, weights;
  Values log_sums;
  std::vector<Indices> experts;
  std::vector<Indices> tokens;  // of each expert, ascending
};

Values softmax_of(const Values& logits, double& log_sum) {
  double sum = 0;
  for (const double x : logits) sum += std::exp(x);
  log_sum = std::log(sum);
  Values p;
  for (const double x : logits) p.push_back(std::exp(x) / sum);
  return p;
}

Values weights_of(const Values& p, const Indices& experts, bool normalize) {
  double sum = 0;
  for (const std::int32_t e : experts) sum += p[static_cast<std::size_t>(e)];
  Values weights;
  for (const std::int32_t e : experts) weights.push_back(p[static_cast<std::size_t>(e)] / (normalize ? sum : 1));
  return weights;
}

Reference reference(const RouteProblem& problem, const Values& logits) {
  Reference r;
  r.tokens.resize(static_cast<std::size_t>(problem.e));
  for (std::int64_t i = 0; i < problem.m; ++i) {
    Indices experts(static_cast<std::size_t>(problem.e));
    Values p(experts.size());
    double log_sum = 0;
    if (problem.routed(i)) {
      p = softmax_of({logits.begin() + i * problem.e, logits.begin() + (i + 1) * problem.e}, log_sum);
      std::iota(experts.begin(), experts.end(), 0);
      std::stable_sort(experts.begin(), experts.end(), [&p](std::int32_t a, std::int32_t b) {
        return p[static_cast<std::size_t>(a)] > p[static_cast<std::size_t>(b)];
      });
      experts.resize(static_cast<std::size_t>(problem.k));
      std::sort(experts.begin(), experts.end());
      for (const std::int32_t e : experts) r.tokens[static_cast<std::size_t>(e)].push_back(static_cast<int>(i));
    } else {
      experts.clear();
    }
    r.probabilities.push_back(p);
    r.log_sums.push_back(log_sum);
    r.experts.push_back(experts);
    r.weights.push_back(weights_of(p, experts, problem.normalize));
  }
  return r;
}

// Expects |difference| <= 2e-6 (1 + |want|).
void expect_near(double got, double want, const std::string& what) {
  EXPECT_LE(std::abs(got - want), 1e-6 * (1 + std::abs(want))) << what << ": " << got << ", not " << want;
}

struct Routed : RouteTensors {
  explicit Routed(const RouteProblem& p) : Routed(p, p.logits()) {}
  Routed(const RouteProblem& p, const Values& logits) : RouteTensors(p.m, p.e, p.k) {
    const Host host;
    const Tensor x = make(DType::f32, {p.m, p.e}, logits), lengths = p.lengths_tensor();
    route_forward(host, x.view(), {p.normalize, p.length(), lengths.view()}, routes());
  }
};

TEST(Route, TokensHaveTheExpertsOfTheReference) {
  for (const RouteProblem& problem : route_problems()) {
    SCOPED_TRACE(problem.name());
    const Routed got(problem);
    const Reference want = reference(problem, problem.logits());
    const Values p = read(got.probabilities.view()), weights = read(got.weights.view()),
                 log_sums = read(got.log_sums.view());
    const Indices experts = integers(got.experts.view()), rows = integers(got.rows.view());
    for (std::int64_t i = 0; i < problem.m; ++i) {
      const auto token = static_cast<std::size_t>(i);
      const std::string name = "token " + std::to_string(i);
      expect_near(log_sums[token], want.log_sums[token], name + ", logarithm of the sum");
      for (std::size_t e = 0; e < want.probabilities[token].size(); ++e)
        expect_near(p[token * static_cast<std::size_t>(problem.e) + e], want.probabilities[token][e], name);
      for (std::size_t j = 0; j < static_cast<std::size_t>(problem.k); ++j) {
        const std::size_t at = token * static_cast<std::size_t>(problem.k) + j;
        const bool routed = problem.routed(i);
        EXPECT_EQ(experts[at], routed ? want.experts[token][j] : -1) << name;
        expect_near(weights[at], routed ? want.weights[token][j] : 0, name + ", weight");
        EXPECT_EQ(rows[at] < 0, !routed) << name;
      }
    }
  }
}

// Ranks that have some of the tokens each: tokens are padding or not by their place among all sequences.
TEST(Route, PartsOfTheTokensHaveTheRoutesOfAll) {
  for (const RouteProblem& p : route_problems()) {
    SCOPED_TRACE(p.name());
    const Routed whole(p);
    const Tensor logits = make(DType::f32, {p.m, p.e}, p.logits()), lengths = p.lengths_tensor();
    const Routes all = whole.routes();
    Indices counts(static_cast<std::size_t>(p.e));
    const std::int64_t bounds[] = {0, p.m / 7, p.m / 2, p.m / 2, p.m};
    for (std::size_t i = 0; i < 4; ++i) {
      const std::int64_t begin = bounds[i], end = bounds[i + 1];
      const RouteTensors part(end - begin, p.e, p.k);
      const Routes got = part.routes();
      route_forward(Host(), logits.view().rows(begin, end), {p.normalize, p.length(), lengths.view(), begin}, got);
      EXPECT_EQ(read(got.probabilities), read(all.probabilities.rows(begin, end)));
      EXPECT_EQ(read(got.log_sums), read(all.log_sums.rows(begin, end)));
      EXPECT_EQ(integers(got.experts), integers(all.experts.rows(begin, end)));
      EXPECT_EQ(read(got.weights), read(all.weights.rows(begin, end)));
      const Indices rows = integers(got.rows), tokens = integers(got.tokens), own = integers(got.counts);
      for (std::size_t j = 0; j < rows.size(); ++j) {
        const auto token = static_cast<std::int64_t>(j) / p.k;
        EXPECT_EQ(rows[j] < 0, !p.routed(begin + token)) << "token " << begin + token;
        if (rows[j] >= 0) {
          EXPECT_EQ(tokens[static_cast<std::size_t>(rows[j])], token);
        }
      }
      for (std::size_t e = 0; e < own.size(); ++e) counts[e] += own[e];
    }
    EXPECT_EQ(counts, integers(all.counts));
  }
}

TEST(Route, RowsAreInTheOrderOfExpertsAndTokens) {
  for (const RouteProblem& problem : route_problems()) {
    SCOPED_TRACE(problem.name());
    const Routed got(problem);
    const Reference want = reference(problem, problem.logits());
    const Indices experts = integers(got.experts.view()), rows = integers(got.rows.view());
    Indices tokens, counts;
    for (const Indices& of_expert : want.tokens) {
      counts.push_back(static_cast<std::int32_t>(of_expert.size()));
      tokens.insert(tokens.end(), of_expert.begin(), of_expert.end());
    }
    const auto used = static_cast<std::int32_t>(tokens.size());
    tokens.resize(static_cast<std::size_t>(problem.k * problem.m), -1);
    EXPECT_EQ(integers(got.tokens.view()), tokens);
    EXPECT_EQ(integers(got.counts.view()), counts);
    for (std::size_t at = 0; at < rows.size(); ++at) {
      if (experts[at] < 0) continue;
      ASSERT_TRUE(rows[at] >= 0 && rows[at] < used);
      EXPECT_EQ(tokens[static_cast<std::size_t>(rows[at])], static_cast<int>(at) / static_cast<int>(problem.k));
      const auto before = std::accumulate(counts.begin(), counts.begin() + experts[at], 0);
      EXPECT_TRUE(rows[at] >= before && rows[at] < before + counts[static_cast<std::size_t>(experts[at])]);
    }
  }
}

TEST(Route, LogitsThatAreNotNumbersGiveTheFirstExpertsAndNoNumbers) {
  const RouteProblem problem{.m = 4, .e = 40, .k = 2};
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    for (const std::size_t at : {0u, 17u, 39u}) {
      Values logits = problem.logits();
      logits[40 + at] = bad;
      const Routed got(problem, logits);
      const Values p = read(got.probabilities.view()), weights = read(got.weights.view());
      for (std::size_t e = 0; e < 40; ++e) EXPECT_TRUE(std::isnan(p[40 + e]) && !std::isnan(p[80 + e]));
      EXPECT_TRUE(std::isnan(weights[2]) && std::isnan(weights[3]) && !std::isnan(weights[1] + weights[4]));
      EXPECT_EQ(integers(got.experts.view())[2], 0);
      EXPECT_EQ(integers(got.experts.view())[3], 1);
      EXPECT_TRUE(std::isnan(read(got.log_sums.view())[1]));
    }
  }
}

TEST(Route, SumsAreThoseOfTheTokensThatAreRouted) {
  for (const RouteProblem& problem : route_problems()) {
    SCOPED_TRACE(problem.name());
    const Routed got(problem);
    const Reference want = reference(problem, problem.logits());
    const Tensor sums(DType::f64, {problem.e + 2});
    for (std::int64_t e = 0; e < problem.e + 2; ++e) sums.view().as<double>()[e] = static_cast<double>(e);
    add_route_sums(Host(), got.routes(), sums.view());
    Values expected(static_cast<std::size_t>(problem.e + 2));
    std::iota(expected.begin(), expected.end(), 0.0);
    for (std::int64_t i = 0; i < problem.m; ++i) {
      const auto token = static_cast<std::size_t>(i), e = static_cast<std::size_t>(problem.e);
      for (std::size_t c = 0; c < e; ++c) expected[c] += want.probabilities[token][c];
      expected[e] += want.log_sums[token] * want.log_sums[token];
      expected[e + 1] += problem.routed(i) ? 1 : 0;
    }
    for (std::size_t c = 0; c < expected.size(); ++c)
      expect_near(sums.view().as<double>()[c], expected[c], "sum " + std::to_string(c));
  }
}

// The objective of route_backward: products of weights and their gradients, and losses that balance, for the
// experts of `r`.
double objective(const RouteProblem& problem, const Reference& r, const Values& logits, const Values& dweights,
                 const Values& aux, double z) {
  double sum = 0;
  for (std::int64_t i = 0; i < problem.m; ++i) {
    if (!problem.routed(i)) continue;
    const auto token = static_cast<std::size_t>(i), k = static_cast<std::size_t>(problem.k);
    double log_sum = 0;
    const Values p = softmax_of({logits.begin() + i * problem.e, logits.begin() + (i + 1) * problem.e}, log_sum),
                 weights = weights_of(p, r.experts[token], problem.normalize);
    for (std::size_t j = 0; j < k; ++j) sum += weights[j] * dweights[token * k + j];
    for (std::size_t e = 0; e < aux.size(); ++e) sum += aux[e] * p[e];
    sum += z * log_sum * log_sum;
  }
  return sum;
}

TEST(RouteBackward, GradientsEqualCentralDifferences) {
  for (const RouteProblem& problem : route_problems()) {
    if (problem.m * problem.e > 400) continue;
    const Routed routed(problem);
    const Values logits = problem.logits(), dweights = random_values(problem.m * problem.k, 5);
    const Reference r = reference(problem, logits);
    const Tensor upstream = make(DType::f32, {problem.m, problem.k}, dweights);
    for (const bool with_aux : {false, true}) {
      for (const double z : {0.0, 0.25}) {
        SCOPED_TRACE(problem.name() + (with_aux ? ", aux" : "") + (z != 0 ? ", z" : ""));
        const Values aux = with_aux ? random_values(problem.e, 6) : Values{};
        const Tensor aux_tensor = with_aux ? make(DType::f32, {problem.e}, aux) : Tensor{};
        const Tensor dlogits = RouteTensors::filled(DType::f32, {problem.m, problem.e});
        route_backward(Host(), upstream.view(), routed.routes(), problem.normalize,
                       {aux_tensor.view(), static_cast<float>(z)}, dlogits.view());
        const Values want =
            central_differences([&](const Values& x) { return objective(problem, r, x, dweights, aux, z); }, logits);
        const Values got = read(dlogits.view());
        for (std::size_t i = 0; i < want.size(); ++i) {
          expect_near(got[i], want[i], "logit " + std::to_string(i));
          EXPECT_TRUE(problem.routed(static_cast<std::int64_t>(i) / problem.e) || got[i] == 0);
        }
      }
    }
  }
}

TEST(RouteBackward, OneNormalizedExpertHasNoGradient) {
  const RouteProblem problem{.m = 20, .e = 9, .k = 1};
  const Routed routed(problem);
  const Tensor upstream = make(DType::f32, {20, 1}, random_values(20, 5)), dlogits(DType::f32, {20, 9});
  route_backward(Host(), upstream.view(), routed.routes(), true, {}, dlogits.view());
  for (const double v : read(dlogits.view())) EXPECT_EQ(v, 0);
}

// Activations of tokens and of rows, in f32 or bf16.
struct Activations {
  Tensor of_tokens, of_rows;
  Activations(DType type, const RouteProblem& p, std::int64_t c, unsigned seed)
      : of_tokens(make(type, {p.m, c}, random_values(p.m * c, seed))),
        of_rows(make(type, {p.k * p.m, c}, random_values(p.k * p.m * c, seed + 1))) {}
};

constexpr std::int64_t kWidths[] = {1, 24, 515};

void for_each_case(const std::function<void(const RouteProblem&, const Routed&, DType, std::int64_t)>& f) {
  for (const RouteProblem& problem : route_problems()) {
    const Routed routed(problem);
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const std::int64_t c : kWidths) {
        if (problem.m * problem.k * c > 100000) continue;  // slow
        SCOPED_TRACE(problem.name() + ", " + std::string(dtype::name_of(type)) + ", " + std::to_string(c));
        f(problem, routed, type, c);
      }
    }
  }
}

// Relative error of one rounding of f32 results, which are sums of some products.
double one_rounding(DType type) { return type == DType::bf16 ? 0x1p-8 : 3e-7; }

TEST(RowsOfExperts, AreThoseOfTheirTokens) {
  for_each_case([](const RouteProblem& p, const Routed& routed, DType type, std::int64_t c) {
    const Activations a(type, p, c, 3);
    const Values before = read(a.of_rows.view()), x = read(a.of_tokens.view());
    gather_rows(Host(), a.of_tokens.view(), routed.routes().tokens, a.of_rows.view());
    const Values after = read(a.of_rows.view());
    const Indices tokens = integers(routed.tokens.view());
    for (std::size_t i = 0; i < after.size(); ++i) {
      const auto width = static_cast<std::size_t>(c);
      const std::int32_t token = tokens[i / width];
      ASSERT_EQ(after[i], token < 0 ? before[i] : x[static_cast<std::size_t>(token) * width + i % width]);
    }
  });
}

// weight x row of a token's j-th expert, at column c; 0 for padding.
double term(const Routed& r, const Values& rows, std::int64_t width, std::int64_t token, std::int64_t j, std::int64_t c,
            bool weighted) {
  const std::int64_t at = token * r.experts.view().shape[1] + j;
  const std::int32_t row = r.rows.view().as<std::int32_t>()[at];
  if (row < 0) return 0;
  const double weight = weighted ? static_cast<double>(r.weights.view().as<float>()[at]) : 1;
  return weight * rows[static_cast<std::size_t>(row * width + c)];
}

TEST(RowsOfExperts, AreAddedToTheirTokens) {
  for_each_case([](const RouteProblem& p, const Routed& routed, DType type, std::int64_t c) {
    const Activations a(type, p, c, 3);
    const Values rows = read(a.of_rows.view()), addend = random_values(p.m * c, 9);
    const Tensor last = make(DType::f32, {p.m, c}, addend), combined = RouteTensors::filled(type, {p.m, c}),
                 added = RouteTensors::filled(type, {p.m, c});
    combine_rows(Host(), a.of_rows.view(), routed.routes(), combined.view());
    sum_rows(Host(), a.of_rows.view(), routed.routes(), last.view(), added.view());
    const Values with_weights = read(combined.view()), plain = read(added.view());
    for (std::int64_t i = 0; i < p.m * c; ++i) {
      const auto at = static_cast<std::size_t>(i);
      double products = 0, sum = 0;
      for (std::int64_t j = 0; j < p.k; ++j) {
        products += term(routed, rows, c, i / c, j, i % c, true);
        sum += term(routed, rows, c, i / c, j, i % c, false);
      }
      ASSERT_NEAR(with_weights[at], products, one_rounding(type) * std::abs(products) + 1e-6);
      ASSERT_NEAR(plain[at], sum + addend[at], one_rounding(type) * std::abs(sum + addend[at]) + 2e-6);
    }
  });
}

TEST(RowsOfExperts, GradientsEqualThoseOfTheReference) {
  for_each_case([](const RouteProblem& p, const Routed& routed, DType type, std::int64_t c) {
    const Activations a(type, p, c, 3);
    const Values y = read(a.of_rows.view()), dout = read(a.of_tokens.view());
    const Tensor dweights = RouteTensors::filled(DType::f32, {p.m, p.k});
    combine_rows_backward(Host(), a.of_tokens.view(), a.of_rows.view(), routed.routes(), a.of_rows.view(),
                          dweights.view());
    const Values dy = read(a.of_rows.view()), dw = read(dweights.view());
    Values want = y;  // rows without a token are not written
    for (std::int64_t at = 0; at < p.m * p.k; ++at) {
      const auto row = std::int64_t{routed.rows.view().as<std::int32_t>()[at]};
      double dot = 0;
      for (std::int64_t i = 0; i < c && row >= 0; ++i) {
        const double d = dout[static_cast<std::size_t>(at / p.k * c + i)];
        dot += d * y[static_cast<std::size_t>(row * c + i)];
        want[static_cast<std::size_t>(row * c + i)] = d * static_cast<double>(routed.weights.view().as<float>()[at]);
      }
      ASSERT_NEAR(dw[static_cast<std::size_t>(at)], dot, 1e-5);
      ASSERT_TRUE(row >= 0 || dw[static_cast<std::size_t>(at)] == 0);
    }
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(dy[i], want[i], one_rounding(type) * std::abs(want[i]));
  });
}

// Three experts of one token, with weights of 1.
struct OneToken : Routed {
  OneToken() : Routed({.m = 1, .e = 3, .k = 3}) { write(weights.view(), {1, 1, 1}); }
};

TEST(RowsOfExperts, AreAddedInTheirOrderAndThenTheAddend) {
  const OneToken one;
  const Tensor rows = make(DType::f32, {3, 1}, {0x1p30, -0x1p30, 1}), out(DType::f32, {1, 1}),
               last = make(DType::f32, {1, 1}, {1}), others = make(DType::f32, {3, 1}, {0x1p30, 0, -0x1p30});
  combine_rows(Host(), rows.view(), one.routes(), out.view());
  EXPECT_EQ(read(out.view()), Values{1});
  sum_rows(Host(), rows.view(), one.routes(), last.view(), out.view());
  EXPECT_EQ(read(out.view()), Values{2});
  sum_rows(Host(), others.view(), one.routes(), last.view(), out.view());
  EXPECT_EQ(read(out.view()), Values{1});
}

TEST(RowsOfExperts, SumsAreRoundedOnce) {
  const OneToken one;
  const Tensor rows = make(DType::bf16, {3, 1}, {256, 1, 1}), out(DType::bf16, {1, 1}),
               last = make(DType::f32, {1, 1}, {2});
  combine_rows(Host(), rows.view(), one.routes(), out.view());
  EXPECT_EQ(read(out.view()), Values{258});  // 256 if each sum were rounded
  sum_rows(Host(), rows.view(), one.routes(), last.view(), out.view());
  EXPECT_EQ(read(out.view()), Values{260});
}

// Bits of all results of one problem.
std::vector<std::uint64_t> all_bits(const RouteProblem& p) {
  std::vector<std::uint64_t> bits;
  const auto add = [&](const View& v) {
    const auto* bytes = static_cast<const std::uint8_t*>(v.data);
    bits.insert(bits.end(), bytes, bytes + v.bytes());
  };
  const Host host;
  const Routed r(p);
  for (const Tensor* t : {&r.probabilities, &r.log_sums, &r.experts, &r.weights, &r.rows, &r.tokens, &r.counts})
    add(t->view());
  const Tensor sums(DType::f64, {p.e + 2}), dw(DType::f32, {p.m, p.k}), dlogits(DType::f32, {p.m, p.e});
  std::fill(sums.view().as<double>(), sums.view().as<double>() + p.e + 2, 0.0);
  add_route_sums(host, r.routes(), sums.view());
  add(sums.view());
  const Activations a(DType::bf16, p, 40, 3), b(DType::bf16, p, 40, 4);
  gather_rows(host, a.of_tokens.view(), r.routes().tokens, a.of_rows.view());
  add(a.of_rows.view());
  combine_rows(host, b.of_rows.view(), r.routes(), b.of_tokens.view());
  add(b.of_tokens.view());
  combine_rows_backward(host, b.of_tokens.view(), b.of_rows.view(), r.routes(), b.of_rows.view(), dw.view());
  add(b.of_rows.view());
  add(dw.view());
  route_backward(host, dw.view(), r.routes(), p.normalize, {{}, 0.5f}, dlogits.view());
  add(dlogits.view());
  return bits;
}

TEST(Route, ThreadsChangeNoBit) {
  const int threads = omp_get_max_threads();
  for (const std::vector<std::int32_t>& lengths : {Indices{}, Indices{900, 1000, 0}}) {
    const RouteProblem problem{.m = 3000, .e = 17, .k = 3, .lengths = lengths};
    std::vector<std::uint64_t> one;
    on_one_thread([&] { one = all_bits(problem); });
    for (const int count : {2, 5}) {
      omp_set_num_threads(count);
      EXPECT_TRUE(all_bits(problem) == one) << count << " threads, " << problem.name();
    }
    omp_set_num_threads(threads);
  }
}

template <class T>
void add_results(const RouteLoops<T>& loops, std::int64_t n, Values& all) {
  std::vector<T> rows, out(static_cast<std::size_t>(n));
  for (const double v : random_values(3 * n, 8)) rows.push_back(dtype::from_float<T>(static_cast<float>(v)));
  const Tensor addend = make(DType::f32, {n}, random_values(n, 9));
  const std::int32_t order[] = {2, 0};
  const float weights[] = {0.3f, 0.6f};
  const auto keep = [&] {
    for (const T v : out) all.push_back(static_cast<double>(dtype::to_float(v)));
  };
  loops.sum({rows.data(), order, 2, weights, nullptr, out.data()}, n);
  keep();
  loops.sum({rows.data(), order, 2, nullptr, addend.view().as<float>(), out.data()}, n);
  keep();
  all.push_back(static_cast<double>(loops.weighted(rows.data(), rows.data() + n, 0.7f, out.data(), n)));
  keep();
}

Values results_of(Isa isa, std::int64_t n) {
  const RouteKernels& kernels = route_kernels(isa);
  Values all;
  add_results(kernels.f32, n, all);
  add_results(kernels.bf16, n, all);
  const Tensor x = make(DType::f32, {n}, random_values(n, 7, 5)), p(DType::f32, {n}), d(DType::f32, {n});
  all.push_back(static_cast<double>(kernels.softmax(x.view().as<float>(), p.view().as<float>(), n)));
  for (const float* of_p : {static_cast<const float*>(nullptr), x.view().as<const float>()}) {
    all.push_back(
        static_cast<double>(kernels.softmax_gradient(p.view().as<float>(), of_p, 0.3f, d.view().as<float>(), n)));
    for (const double v : read(d.view())) all.push_back(v);
  }
  for (const double v : read(p.view())) all.push_back(v);
  Values sums(static_cast<std::size_t>(n), 0.1);
  kernels.add_to(p.view().as<float>(), sums.data(), n);
  all.insert(all.end(), sums.begin(), sums.end());
  return all;
}

TEST(RouteKernels, InstructionSetsChangeNoBit) {
  for (const std::int64_t n : {1, 7, 16, 33, 128, 1300}) {
    const Values baseline = results_of(Isa::baseline, n);
    for (const Isa isa : test::isas()) EXPECT_TRUE(results_of(isa, n) == baseline) << name_of(isa) << ", " << n;
  }
}

TEST(Route, ViewsThatDoNotMatchAreRefused) {
  const Host host;
  const RouteTensors r(6, 4, 2), wide(6, 2, 3);
  const Tensor logits(DType::f32, {6, 4}), other(DType::f32, {6, 2}), lengths(DType::i32, {2}), x(DType::bf16, {6, 8}),
      y(DType::f32, {12, 8});
  EXPECT_EQ(error_of([&] { route_forward(host, other.view(), {}, wide.routes()); }),
            "route: a token cannot have so many experts");
  EXPECT_EQ(error_of([&] { route_forward(host, other.view(), {}, r.routes()); }),
            "route: logits must be float32 and match the routes");
  EXPECT_EQ(error_of([&] {
              route_forward(host, logits.view(), {true, 2, lengths.view()}, r.routes());
            }),
            "route: lengths must be int32, one for each sequence");
  EXPECT_EQ(error_of([&] {
              route_forward(host, logits.view(), {true, 4, lengths.view(), 3}, r.routes());
            }),
            "route: lengths must be int32, one for each sequence");
  EXPECT_EQ(error_of([&] { gather_rows(host, x.view(), r.routes().tokens, y.view()); }),
            "rows of experts: activations of different types");
}

}  // namespace
}  // namespace fp8::ops
