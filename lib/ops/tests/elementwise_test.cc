// SwiGLU, embedding, bias gradient and cross-entropy compared with f64 and central differences; sums of ranks' partial
// results and dropout of a part of the columns.
#include "fp8/ops/elementwise.h"

#include <gtest/gtest.h>

#include <limits>

#include "fp8/ops/dropout.h"
#include "fp8/ops/norm.h"
#include "reference.h"

namespace fp8::ops {
namespace {

// silu(gate) * up for rows of 2 f elements.
Values naive_swiglu(const Values& gate_up, std::size_t f) {
  Values h;
  for (std::size_t row = 0; row < gate_up.size(); row += 2 * f) {
    for (std::size_t c = 0; c < f; ++c)
      h.push_back(gate_up[row + c] / (1 + std::exp(-gate_up[row + c])) * gate_up[row + f + c]);
  }
  return h;
}

TEST(SwiGlu, AgreesWithF64AndCentralDifferences) {
  Host host;
  for (const std::int64_t f : {1, 3, 40}) {
    const std::int64_t m = 7;
    const Values x = random_values(m * 2 * f, 1, 6), dh = random_values(m * f, 2);
    const auto width = static_cast<std::size_t>(f);
    const Values want = central_differences([&](const Values& v) { return dot(naive_swiglu(v, width), dh); }, x);
    for (const DType type : {DType::f32, DType::bf16}) {
      const double tolerance = type == DType::f32 ? 1e-6 : 5e-3;
      const Tensor tx = make(type, {m, 2 * f}, x), tdh = make(type, {m, f}, dh), h(type, {m, f}), dx(type, {m, 2 * f});
      swiglu_forward(host, tx.view(), h.view());
      EXPECT_LT(relative_error(read(h.view()), naive_swiglu(x, width)), tolerance);
      swiglu_backward(host, tdh.view(), tx.view(), dx.view());
      EXPECT_LT(relative_error(read(dx.view()), want), tolerance);
      swiglu_backward(host, tdh.view(), tx.view(), tx.view());
      EXPECT_EQ(read(tx.view()), read(dx.view()));
    }
  }
}

TEST(SwiGlu, SaturatesWithoutNaN) {
  Host host;
  const Tensor x = make(DType::f32, {1, 4}, {-300, 300, 2, 2}), h(DType::f32, {1, 2}),
               dh = make(DType::f32, {1, 2}, {1, 1});
  swiglu_forward(host, x.view(), h.view());
  EXPECT_EQ(read(h.view()), (Values{0, 600}));
  swiglu_backward(host, dh.view(), x.view(), x.view());
  EXPECT_EQ(read(x.view()), (Values{0, 2, 0, 300}));
}

TEST(SwiGlu, RefusesMismatchedWidths) {
  Host host;
  const Tensor x(DType::f32, {2, 5}), h(DType::f32, {2, 2});
  EXPECT_EQ(error_of([&] { swiglu_forward(host, x.view(), h.view()); }),
            "swiglu: gate_up must be twice as wide as the result");
}

TEST(Embedding, GathersRowsAndConverts) {
  Host host;
  const Tensor table = make(DType::f32, {3, 2}, {1, 2, 3, 4, 5, 6}), tokens = make(DType::i32, {4}, {2, 0, 2, 1});
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor out(type, {4, 2});
    embedding_forward(host, tokens.view(), table.view(), out.view());
    EXPECT_EQ(read(out.view()), (Values{5, 6, 1, 2, 5, 6, 3, 4}));
  }
  const Tensor wrong = make(DType::i32, {4}, {2, 0, 3, 1}), out(DType::f32, {4, 2});
  EXPECT_EQ(error_of([&] { embedding_forward(host, wrong.view(), table.view(), out.view()); }),
            "embedding: token id 3 is not below 3");
}

TEST(Embedding, BackwardAddsRowsInOrder) {
  Host host;
  const std::int64_t m = 700, v = 9, n = 130;
  const Values dout = random_values(m * n, 3);
  Values ids(static_cast<std::size_t>(m));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(i * i % 7);
  const Tensor tokens = make(DType::i32, {m}, ids), tdout = make(DType::bf16, {m, n}, dout);
  const Tensor got = make(DType::f32, {v, n}, Values(static_cast<std::size_t>(v * n), 1.0)), one(DType::f32, {v, n});
  std::vector<float> want(static_cast<std::size_t>(v * n), 1.0f);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto row = static_cast<std::size_t>(ids[i]) * static_cast<std::size_t>(n);
    for (std::size_t c = 0; c < static_cast<std::size_t>(n); ++c) {
      want[row + c] += static_cast<float>(dout[i * static_cast<std::size_t>(n) + c]);
    }
  }
  write(one.view(), Values(static_cast<std::size_t>(v * n), 1.0));
  embedding_backward(host, tokens.view(), tdout.view(), got.view());
  on_one_thread([&] { embedding_backward(host, tokens.view(), tdout.view(), one.view()); });
  EXPECT_EQ(read(got.view()), Values(want.begin(), want.end()));
  EXPECT_EQ(read(one.view()), Values(want.begin(), want.end()));
}

TEST(BiasBackward, SumsColumnsOfStridedRows) {
  Host host;
  const std::int64_t m = 3000, n = 21;
  const Values wide = random_values(m * (n + 3), 4);
  const Tensor twide = make(DType::f32, {m, n + 3}, wide),
               db = make(DType::f32, {n}, Values(static_cast<std::size_t>(n), 8.0));
  const Tensor again = make(DType::f32, {n}, Values(static_cast<std::size_t>(n), 8.0));
  const View dy = twide.view().columns(3, n + 3);
  Values want(static_cast<std::size_t>(n), 8.0);
  const Values rows = read(dy);
  for (std::size_t i = 0; i < rows.size(); ++i) want[i % want.size()] += rows[i];
  bias_backward(host, dy, db.view());
  on_one_thread([&] { bias_backward(host, dy, again.view()); });
  EXPECT_LT(relative_error(read(db.view()), want), 1e-6);
  EXPECT_EQ(read(db.view()), read(again.view()));
}

// Losses of rows of v logits.
Values naive_losses(const Values& logits, const Values& targets, std::size_t v) {
  Values losses;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double* row = logits.data() + i * v;
    double sum = 0;
    for (std::size_t c = 0; c < v; ++c) sum += std::exp(row[c] - 30);
    losses.push_back(targets[i] < 0 ? 0 : 30 + std::log(sum) - row[static_cast<std::size_t>(targets[i])]);
  }
  return losses;
}

TEST(CrossEntropy, AgreesWithF64AndCentralDifferences) {
  Host host;
  const Values targets{0, -100, 10, 4, 10};
  const std::int64_t m = 5, v = 11;
  const Values x = random_values(m * v, 5, 8);
  const Values losses = naive_losses(x, targets, static_cast<std::size_t>(v));
  const Values gradient = central_differences(
      [&](const Values& at) {
        return 0.125 * dot(naive_losses(at, targets, static_cast<std::size_t>(v)), Values(targets.size(), 1.0));
      },
      x);
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor tx = make(type, {m, v}, x), tt = make(DType::i32, {m}, targets), tl(DType::f32, {m});
    cross_entropy(host, tx.view(), tt.view(), tl.view(), 0.125f, false);
    EXPECT_EQ(read(tx.view()), x);
    EXPECT_LT(relative_error(read(tl.view()), losses), 3e-7);
    EXPECT_EQ(tl.as<float>()[1], 0.0f);
    cross_entropy(host, tx.view(), tt.view(), tl.view(), 0.125f, true);
    EXPECT_LT(relative_error(read(tl.view()), losses), 3e-7);
    EXPECT_LT(relative_error(read(tx.view()), gradient), type == DType::f32 ? 1e-6 : 4e-3);
    for (std::size_t c = 11; c < 22; ++c) EXPECT_EQ(read(tx.view())[c], 0.0);
  }
}

TEST(CrossEntropy, StaysAccurateOnAWideVocabularyAndForLargeLogits) {
  Host host;
  const std::int64_t m = 3, v = 50304;
  Values x = random_values(m * v, 6, 2);
  for (double& value : x) value += 25;
  x[77] = 60;
  const Values targets{77, 3, 50303}, losses = naive_losses(x, targets, static_cast<std::size_t>(v));
  const Tensor tx = make(DType::f32, {m, v}, x), tt = make(DType::i32, {m}, targets), tl(DType::f32, {m}),
               one(DType::f32, {m});
  const Values exact = naive_losses(read(tx.view()), targets, static_cast<std::size_t>(v));
  cross_entropy(host, tx.view(), tt.view(), tl.view(), 1.0f, false);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(read(tl.view())[i], exact[i], 2e-6);
  on_one_thread([&] { cross_entropy(host, tx.view(), tt.view(), one.view(), 1.0f, false); });
  EXPECT_EQ(read(one.view()), read(tl.view()));
  cross_entropy(host, tx.view(), tt.view(), tl.view(), 1.0f, true);
  const Values gradient = read(tx.view());
  double sum = 0;
  for (std::size_t c = 0; c < static_cast<std::size_t>(v); ++c) sum += gradient[static_cast<std::size_t>(v) + c];
  EXPECT_NEAR(sum, 0.0, 1e-6);
}

TEST(CrossEntropy, NaNGivesANaNLoss) {
  Host host;
  const Tensor x = make(DType::f32, {1, 3}, {1, std::numeric_limits<double>::quiet_NaN(), 2}),
               t = make(DType::i32, {1}, {0});
  const Tensor l(DType::f32, {1});
  cross_entropy(host, x.view(), t.view(), l.view(), 1.0f, true);
  EXPECT_TRUE(std::isnan(l.as<float>()[0]));
  for (const double v : read(x.view())) EXPECT_TRUE(std::isnan(v));
}

TEST(CrossEntropy, RefusesATargetBeyondTheVocabulary) {
  Host host;
  const Tensor x(DType::f32, {1, 3}), t = make(DType::i32, {1}, {3}), l(DType::f32, {1});
  EXPECT_EQ(error_of([&] { cross_entropy(host, x.view(), t.view(), l.view(), 1.0f, true); }),
            "cross-entropy: target 3 is not below 3");
}

TEST(SumPartials, AddsTermsInOrderThenTheBiasAndRoundsOnce) {
  const Host host;
  for (const DType type : {DType::f32, DType::bf16})
    for (const std::int64_t count : {1, 2, 3, 8})
      for (const std::int64_t n : {1, 33, 1500})
        for (const bool with_bias : {false, true}) {
          const std::int64_t m = 3, size = m * n;
          const Tensor terms = make(type, {count, m, n}, random_values(count * size, 1, 5)),
                       bias = make(type, {n}, random_values(n, 2, 5)), out(type, {m, n}), again(type, {m, n});
          sum_partials(host, terms.view(), with_bias ? bias.view() : View{}, out.view());
          on_one_thread([&] { sum_partials(host, terms.view(), with_bias ? bias.view() : View{}, again.view()); });
          const Values from = read(terms.view()), added = read(bias.view());
          Values want;
          for (std::int64_t i = 0; i < size; ++i) {
            float sum = static_cast<float>(from[static_cast<std::size_t>(i)]);
            for (std::int64_t t = 1; t < count; ++t)
              sum += static_cast<float>(from[static_cast<std::size_t>(t * size + i)]);
            if (with_bias) sum += static_cast<float>(added[static_cast<std::size_t>(i % n)]);
            want.push_back(static_cast<double>(type == DType::f32 ? sum : dtype::to_float(dtype::to_bf16(sum))));
          }
          EXPECT_EQ(read(out.view()), want) << count << " terms, " << n << " columns, bias " << with_bias;
          EXPECT_EQ(read(again.view()), want);
        }
}

// A bf16 after 1 is 1 + 2^-7, so that a sum that is rounded before the last term stays 1.
TEST(SumPartials, DiffersFromSumsThatAreRoundedTwice) {
  const Host host;
  const Tensor three = make(DType::bf16, {3, 1, 1}, {1, 0x1p-8, 0x1p-8}),
               two = make(DType::bf16, {2, 1, 1}, {1, 0x1p-8}), bias = make(DType::bf16, {1}, {0x1p-8}),
               out(DType::bf16, {1, 1});
  sum_partials(host, three.view(), {}, out.view());
  EXPECT_EQ(read(out.view()), Values{1 + 0x1p-7});
  sum_partials(host, two.view(), bias.view(), out.view());
  EXPECT_EQ(read(out.view()), Values{1 + 0x1p-7});
  const Tensor cancelling = make(DType::f32, {3, 1, 1}, {0x1p24, 1, -0x1p24}), sum(DType::f32, {1, 1});
  sum_partials(host, cancelling.view(), {}, sum.view());
  EXPECT_EQ(read(sum.view()), Values{0.0}) << "terms are added in order";
}

TEST(SumPartials, RefusesMismatchedViews) {
  const Host host;
  const Tensor terms(DType::bf16, {2, 3, 4}), out(DType::bf16, {3, 4}), wide(DType::f32, {3, 4}),
      bias(DType::bf16, {3}), few(DType::bf16, {2, 4});
  EXPECT_EQ(error_of([&] { sum_partials(host, terms.view(), {}, few.view()); }), "sum partials: shapes differ");
  for (const auto& [added, to] : {std::pair{View{}, wide.view()}, {bias.view(), out.view()}})
    EXPECT_EQ(error_of([&, b = added, o = to] { sum_partials(host, terms.view(), b, o); }),
              "sum partials: terms, bias and sum differ in type or columns");
}

// Ranks that have columns of the input of an adapter leave out what one rank would.
TEST(Dropout, PartsOfTheColumnsLoseTheElementsOfTheWhole) {
  const Host host;
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::int64_t m = 19, n = 45;
    const Tensor x = make(type, {m, n}, random_values(m * n, 1)), whole(type, {m, n});
    const Dropout drop{0.4f, 7, 11, 100};
    dropout(host, x.view(), drop, whole.view());
    const std::int64_t bounds[] = {0, 3, 16, 17, n};
    for (std::size_t p = 0; p < 4; ++p) {
      const std::int64_t begin = bounds[p], end = bounds[p + 1];
      const Values part = read(x.view().columns(begin, end)), want = read(whole.view().columns(begin, end));
      const Tensor own = make(type, {m, end - begin}, part);
      Dropout of_part = drop;
      of_part.first_column = begin;
      of_part.columns = n;
      dropout(host, own.view(), of_part, own.view());
      EXPECT_EQ(read(own.view()), want) << "columns from " << begin;
      dropout(host, x.view().columns(begin, end), of_part, x.view().columns(begin, end));
    }
    EXPECT_EQ(read(x.view()), read(whole.view())) << "parts in place";
    for (std::int64_t row = 0; row < m; row += 7) {
      const Tensor later = make(type, {m - row, n}, Values(static_cast<std::size_t>((m - row) * n), 1.0)),
                   all = make(type, {m, n}, Values(static_cast<std::size_t>(m * n), 1.0));
      Dropout moved = drop;
      moved.first_row += row;
      dropout(host, later.view(), moved, later.view());
      dropout(host, all.view(), drop, all.view());
      EXPECT_EQ(read(later.view()), read(all.view().rows(row, m))) << "rows from " << row;
    }
  }
}

}  // namespace
}  // namespace fp8::ops
